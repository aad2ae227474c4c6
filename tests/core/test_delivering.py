"""Deliveries decided: what a try leads to, and which endpoints may be tried."""

import pytest

from forebay.core.delivering import RESTS_AFTER, DeliveryPolicy, Endpoints, after_try
from forebay.core.outbox import Delivery, DeliveryState, Try, endpoint_of

POLICY = DeliveryPolicy()
DAY_S = 86_400.0


def a_delivery(tries=1, *, since=0.0, before=0):
    return Delivery("j", "https://a.example/x", DeliveryState.SENDING, tries, since, 60.0, before)


def after(status, *, tries=1, now=1.0, since=0.0, before=0, jitter=0.0, asked_s=None):
    row = a_delivery(tries, since=since, before=before)
    tried = Try(tries, now, 0.1, status)
    return after_try(row, tried, policy=POLICY, now=now, jitter=jitter, retry_after_s=asked_s)


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_any_2xx_is_delivered(status):
    step = after(status)
    assert (step.state, step.due_at) == (DeliveryState.DELIVERED, None)


@pytest.mark.parametrize("status", [None, 100, 199, 300, 301, 302, 307, 400, 404, 429, 500, 503, 599])
def test_everything_else_is_tried_again(status):
    step = after(status)
    assert step.state is DeliveryState.WAITING
    assert step.due_at == 1.0 + 2.5


def test_410_wants_no_more():
    assert after(410).state is DeliveryState.DISABLED


def test_the_wait_doubles_up_to_an_hour_and_is_half_drawn():
    waits = [after(500, tries=n).due_at - 1.0 for n in range(1, 13)]
    assert waits[:4] == [2.5, 5.0, 10.0, 20.0]
    assert waits[-1] == 1800.0
    assert after(500, tries=12, jitter=0.999).due_at - 1.0 == pytest.approx(3600.0, abs=4.0)


def test_a_day_of_failures_is_given_up_after_some_thirty_tries():
    now, tries, state = 0.0, 0, DeliveryState.WAITING
    while state is DeliveryState.WAITING:
        tries += 1
        step = after(500, tries=tries, now=now, jitter=0.5)
        state, last, now = step.state, now, step.due_at
    assert state is DeliveryState.GIVEN_UP
    assert last <= DAY_S
    assert 25 <= tries <= 45


def test_a_clock_that_jumps_a_year_gives_nothing_up_before_its_tries():
    assert after(500, tries=2, now=366 * DAY_S).state is DeliveryState.WAITING
    assert after(500, tries=POLICY.tries_min, now=366 * DAY_S).state is DeliveryState.GIVEN_UP


def test_a_replay_gets_its_tries_and_its_day_anew():
    step = after(500, tries=41, before=40, since=5 * DAY_S, now=5 * DAY_S + 1)
    assert step.state is DeliveryState.WAITING
    assert step.due_at == 5 * DAY_S + 1 + 2.5


@pytest.mark.parametrize(
    ("asked_s", "wait_s"), [(120.0, 120.0), (1e9, 3600.0), (0.0, 2.5), (-5.0, 2.5), (1.0, 2.5)]
)
def test_what_a_receiver_asks_for_is_honoured_within_an_hour(asked_s, wait_s):
    assert after(503, asked_s=asked_s).due_at == 1.0 + wait_s


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("https://A.example/Hook", "https://a.example"),
        ("https://a.example:8443?x=/y/", "https://a.example:8443"),
        ("https://a.example", "https://a.example"),
        ("nonsense", "nonsense"),
    ],
)
def test_an_endpoint_is_scheme_host_and_port(url, endpoint):
    assert endpoint_of(url) == endpoint


def endpoints(**bounds):
    return Endpoints(**{"total_max": 16, "each_max": 8, "step": 4, **bounds})


def fail(line, name, times, now=0.0):
    for _ in range(times):
        line.started(name)
        line.ended(name, worked=False, now=now)


def test_one_endpoint_gets_no_more_than_its_share():
    line = endpoints()
    for _ in range(4):
        line.started("a")
    assert line.rooms(now=0.0) == {"a": 4}
    line.started("a")
    assert line.rooms(now=0.0) == {"a": 0}  # less than a step
    assert line.free == 11


def test_an_endpoint_that_keeps_failing_gets_one_try_and_a_growing_rest():
    line = endpoints()
    fail(line, "a", RESTS_AFTER - 1)
    assert line.rooms(now=0.0) == {}
    fail(line, "a", 1)
    assert line.rooms(now=0.5) == {"a": 0}
    assert line.wakes_at(now=0.5) == 1.0
    assert line.rooms(now=1.0) == {"a": 1}
    line.started("a")
    assert line.rooms(now=1.0) == {"a": 0}
    line.ended("a", worked=False, now=1.0)
    assert line.rooms(now=2.9) == {"a": 0}
    fail(line, "a", 20, now=3.0)
    assert line.wakes_at(now=3.0) == 63.0


def test_an_endpoint_that_works_again_is_well():
    line = endpoints()
    fail(line, "a", 10)
    line.started("a")
    line.ended("a", worked=True, now=99.0)
    assert line.rooms(now=99.0) == {}


def test_all_that_fail_together_leave_half_for_the_others():
    line = endpoints()
    for n in range(20):
        fail(line, f"dead-{n}", RESTS_AFTER)
    rooms = line.rooms(now=100.0)
    assert sum(rooms.values()) == 8
    for name in [name for name, room in rooms.items() if room]:
        line.started(name)
    assert sum(line.rooms(now=100.0).values()) == 0
    assert line.free == 8


def test_what_is_remembered_of_failures_is_bounded(monkeypatch):
    monkeypatch.setattr("forebay.core.delivering.ENDPOINTS_MAX", 5)
    line = endpoints()
    for n in range(9):
        fail(line, f"dead-{n}", RESTS_AFTER)
    assert sorted(line.rooms(now=0.0)) == [f"dead-{n}" for n in range(4, 9)]
