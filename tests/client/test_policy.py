"""What the client tries again, when, and for how long: pure, with a clock that is a number."""

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.client.faults import RemoteError, fault_of, retry_after_s
from forebay.client.pace import Pace
from forebay.client.policy import (
    BACKOFFS,
    CAP_S,
    STANDARD,
    Hint,
    Known,
    Patience,
    backoff_s,
    floor_s,
    may_repeat,
)
from forebay.client.wire import Answer, Call, Lost
from forebay.core.retry_budget import RETRIES_HELD_MAX, RETRIES_PER_S
from forebay.errors import QueueFullError, UnreachableError

GET, POST = Call("GET", "/x"), Call("POST", "/x", repeatable=False)


def answer(status, body=b"", **headers):
    return Answer(status, {name.replace("_", "-"): text for name, text in headers.items()}, body)


def test_what_can_be_read_once_is_not_sent_again_whatever_the_answer():
    """Its first part is gone, and the rest would be taken for the whole."""
    once = Call("PUT", "/v1/blobs", source=lambda: iter(()), repeatable=False)
    for status in (429, 503):
        assert not may_repeat(once, answer(status, b'{"retry_after_s": 1}', retry_after="1"))
        assert may_repeat(once._replace(repeatable=True), answer(status))
    assert may_repeat(once, Lost("refused", sent=False)) and not may_repeat(once, Lost("reset", sent=True))


def test_what_killed_its_worker_is_no_refusal_at_the_door():
    lost = answer(503, b'{"code": "worker_lost", "retry_after_s": 1}')
    assert not may_repeat(POST, lost) and may_repeat(GET, lost)
    assert may_repeat(POST, answer(503, b'{"code": "draining"}'))


def test_an_outage_is_told_once_with_how_long_it_is_waited_for():
    told = []
    known = Known()
    patience = Patience(
        now=0.0, retry_for_s=60.0, unreachable_for_s=2.0, known=known, away=lambda *why: told.append(why)
    )
    gone = Lost("Connection refused", sent=False)
    patience.refused(gone, now=0.0, draw=0.0)
    assert not told, "a server that was never there is given up soon, and that is told then"
    patience.success(0.0)
    patience.refused(answer(429, b"{}"), now=1.0, draw=0.0)
    for now in (10.0, 11.0, 12.0):
        assert patience.refused(gone, now=now, draw=0.0) is not None
    assert [(str(why), left_s) for why, left_s in told] == [
        ("cannot reach the server: Connection refused", 50.0)
    ]
    other = Patience(now=12.0, retry_for_s=60.0, known=known, away=lambda *why: told.append(why))
    other.refused(gone, now=12.0, draw=0.0)
    assert len(told) == 1, "another verb of the same client"
    patience.success(13.0)
    patience.refused(answer(503, b'{"code": "draining"}'), now=13.0, draw=0.0)
    assert len(told) == 2


def test_backoff_is_100_200_400_800_ms_up_to_2_s_and_never_overflows():
    waits = [backoff_s(failures=n, draw=1.0) for n in range(5000)]
    assert [round(wait, 3) for wait in waits[1:7]] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
    assert all(0 < a <= b <= CAP_S for a, b in zip(waits[1:], waits[2:], strict=False))


@pytest.mark.parametrize(
    ("service_s", "floor", "first"),
    [
        (None, 0.0, (0.075, 0.1)),
        (0.05, 0.025, (0.075, 0.1)),  # a model of 50 ms: at least 25 ms
        (0.4, 0.2, (0.2, 0.25)),
        (2.0, 1.0, (1.0, 1.25)),
        (600.0, 1.5, (1.5, 1.875)),  # under the cap, and never all at the same moment
    ],
)
def test_the_first_wait_is_at_least_half_of_what_a_job_takes(service_s, floor, first):
    assert floor_s(service_s) == floor
    waits = [backoff_s(failures=1, draw=draw, service_s=service_s) for draw in (0.0, 1.0)]
    assert waits == pytest.approx(list(first)) and waits[0] >= floor


def test_what_a_job_takes_is_learned_from_a_refusal_and_used_when_there_is_none():
    known = Known()
    told = answer(429, b'{"code": "queue_full", "retry_after_s": 0.01, "service_s": 1.6}')
    first = Patience(now=0.0, retry_for_s=60.0, known=known)
    assert first.refused(told, now=0.0, draw=0.0) == pytest.approx(0.8)
    other = Patience(now=0.0, retry_for_s=60.0, known=known)
    assert other.refused(Lost("cut", sent=True), now=0.0, draw=0.0) == pytest.approx(0.8)
    assert other.refused(Lost("cut", sent=True), now=1.0, draw=1.0) == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("kind", "waits"),
    [
        ("standard", [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 2.0, 2.0]),
        ("interactive", [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]),
        ("batch", [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]),
    ],
)
def test_each_class_of_producers_has_its_cap(kind, waits):
    patience = Patience(now=0.0, retry_for_s=3600.0, backoff=BACKOFFS[kind])
    cut = Lost("cut", sent=True)
    assert [round(patience.refused(cut, now=100.0 * n, draw=1.0), 3) for n in range(10)] == waits


@pytest.mark.parametrize(
    ("kind", "told", "waits"),
    [
        ("interactive", "5", True),
        ("interactive", "6", False),
        ("batch", "45", True),
        ("standard", "45", True),
    ],
)
def test_somebody_at_a_screen_is_told_rather_than_kept(kind, told, waits):
    patience = Patience(now=0.0, retry_for_s=60.0, backoff=BACKOFFS[kind])
    wait_s = patience.refused(answer(429, retry_after=told), now=0.0, draw=0.5)
    assert (wait_s is not None) is waits and (wait_s is None or wait_s >= float(told))


def test_a_time_that_was_made_for_this_caller_is_kept_to_the_moment():
    over = answer(429, b'{"code": "over_budget", "retry_after_s": 0.037, "service_s": 9}', retry_after="1")
    patience = Patience(now=0.0, retry_for_s=60.0)
    assert [patience.refused(over, now=now, draw=0.9) for now in (0.0, 1.0, 2.0)] == [0.037] * 3
    assert patience.refused(answer(503), now=3.0, draw=1.0) == pytest.approx(1.875), "and is no failure"
    assert STANDARD.cap_s == CAP_S


@given(
    st.integers(0, 10_000),
    st.floats(0.0, 1.0),
    st.none() | st.floats(0.0, 1e6),
    st.none() | st.floats(0.0, 1e9),
    st.sampled_from(sorted(BACKOFFS)),
)
def test_no_wait_is_below_what_was_told_and_none_of_our_own_above_the_cap(
    failures, draw, after_s, service_s, kind
):
    cap_s = BACKOFFS[kind].cap_s
    wait_s = backoff_s(failures=failures, draw=draw, after_s=after_s, service_s=service_s, cap_s=cap_s)
    assert wait_s >= floor_s(service_s, cap_s=cap_s)
    assert (after_s or 0.0) <= wait_s <= max(cap_s, 1.25 * (after_s or 0.0))


@given(st.integers(1, 200), st.floats(0.0, 1.0))
def test_hundreds_of_callers_of_a_dead_server_send_it_a_trickle(callers, draw):
    known, sent, ends_at = Known(), [], 20.0
    known.reached = True
    heap = [(0.0, n, Patience(now=0.0, retry_for_s=60.0, known=known)) for n in range(callers)]
    while heap:
        now, number, patience = heapq.heappop(heap)
        wait_s = patience.refused(Lost("cut", sent=True), now=now, draw=draw)
        if wait_s is not None and now + wait_s <= ends_at:
            sent.append(now + wait_s)
            heapq.heappush(heap, (now + wait_s, number, patience))
    assert len(sent) <= RETRIES_HELD_MAX + RETRIES_PER_S * ends_at
    if callers == 1:
        assert len(sent) >= 10, "one caller alone notices nothing of it"


def test_what_succeeds_allows_retries_and_one_that_is_not_made_is_given_back():
    known, cut = Known(), Lost("cut", sent=True)
    patience = Patience(now=0.0, retry_for_s=60.0, known=known)
    waits = [patience.refused(cut, now=0.0, draw=0.0) for _ in range(40)]
    assert waits[-1] == 2.0 and known.retries.take(now=0.0) == pytest.approx(2.1)
    for _ in range(110):
        patience.success(0.0)
    assert patience.refused(cut, now=0.0, draw=1.0) == 0.1
    short = Patience(now=0.0, retry_for_s=0.01, known=known)
    for _ in range(100):
        assert short.refused(cut, now=0.0, draw=0.0) is None
    assert patience.refused(cut, now=0.0, draw=1.0) == 0.2


def test_a_refusal_with_a_time_costs_no_retry():
    known = Known()
    for _ in range(1000):
        patience = Patience(now=0.0, retry_for_s=60.0, known=known)
        assert patience.wait_s(Hint(0.5), now=0.0, draw=0.0) == 0.5
    assert Patience(now=0.0, retry_for_s=60.0, known=known).wait_s(Hint(), now=0.0, draw=1.0) == 0.1


def test_a_retry_after_is_never_undercut_and_callers_spread():
    draws = [n / 1000 for n in range(1000)]
    waits = [backoff_s(failures=1, draw=draw, after_s=10.0) for draw in draws]
    assert min(waits) >= 10.0
    by_quarter = [sum(1 for wait in waits if low <= wait < low + 0.25) for low in (10, 10.5, 11, 11.5)]
    assert max(by_quarter) <= 3 * 1000 / 8


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (answer(429, b'{"retry_after_s": 0.25}', retry_after="1"), 0.25),
        (answer(429, retry_after_ms="300", retry_after="1"), 0.3),
        (answer(429, retry_after="7"), 7.0),
        (
            answer(
                503,
                retry_after="Thu, 01 Jan 2026 00:00:09 GMT",
                date="Thu, 01 Jan 2026 00:00:04 GMT",
            ),
            5.0,
        ),
        (answer(429, b'{"retry_after_s": "NaN"}', retry_after="-3"), None),
        (answer(429, retry_after="soon"), None),
        (answer(429), None),
    ],
)
def test_the_finest_figure_of_the_server_counts(found, expected):
    assert retry_after_s(found) == expected


@pytest.mark.parametrize(
    ("call", "reply", "expected"),
    [
        (GET, answer(503), True),
        (GET, answer(429), True),
        (GET, answer(502), True),
        (GET, answer(500), False),
        (GET, answer(404), False),
        (GET, answer(429, x_should_retry="false"), False),
        (GET, answer(500, x_should_retry="true"), True),
        (GET, answer(409, x_should_retry="false", retry_after="1"), False),
        (GET, answer(409, retry_after="1"), True),
        (GET, answer(409), False),
        (GET, answer(507, b'{"retry_after_s": 1}'), True),
        (GET, Lost("reset", sent=True), True),
        (POST, Lost("reset", sent=True), False),
        (POST, Lost("refused", sent=False), True),
        (POST, answer(503), True),
        (POST, answer(502), False),
    ],
)
def test_only_what_is_safe_and_of_use_is_repeated(call, reply, expected):
    assert may_repeat(call, reply) is expected


def test_patience_ends_after_its_time_and_a_success_renews_it():
    patience = Patience(now=0.0, retry_for_s=10.0)
    assert patience.refused(answer(503), now=0.0, draw=1.0) == pytest.approx(0.1)
    assert patience.refused(answer(503), now=9.0, draw=1.0) == pytest.approx(0.2)
    patience.success(9.5)
    assert patience.refused(answer(503), now=18.0, draw=1.0) == pytest.approx(0.1)
    assert patience.refused(answer(503), now=19.5, draw=1.0) is None


def test_a_wait_that_is_longer_than_what_is_left_ends_it_at_once():
    assert Patience(now=0.0, retry_for_s=10.0).refused(answer(429, retry_after="60"), now=0, draw=0.5) is None


def test_a_server_that_never_answered_is_given_up_sooner():
    patience = Patience(now=0.0, retry_for_s=60.0, unreachable_for_s=2.0)
    assert patience.refused(Lost("refused", sent=False), now=1.0, draw=0.0) is not None
    assert patience.refused(Lost("refused", sent=False), now=2.1, draw=0.0) is None
    patience.refused(answer(503), now=2.1, draw=0.0)
    assert patience.refused(Lost("refused", sent=False), now=30.0, draw=0.0) is not None


def test_a_connection_that_was_made_once_is_waited_for_by_every_later_verb():
    known, lost = Known(), Lost("refused", sent=False)
    terms = {"retry_for_s": 60.0, "unreachable_for_s": 5.0, "known": known}
    assert Patience(now=0.0, **terms).refused(lost, now=5.1, draw=0.0) is None
    assert Patience(now=0.0, **terms).refused(Lost("cut", sent=True), now=5.1, draw=0.0) is not None
    assert Patience(now=100.0, **terms).refused(lost, now=150.0, draw=0.0) is not None


def test_refusals_are_the_errors_of_the_one_tree_and_unknown_codes_are_kept():
    full = fault_of(
        answer(429, b'{"code": "queue_full", "detail": "no room", "limit": 5, "retry_after_s": 2}')
    )
    assert isinstance(full, QueueFullError)
    assert (str(full), full.limit, full.retry_after_s) == ("no room", 5, 2.0)
    odd = fault_of(answer(418, b'{"code": "teapot", "title": "Teapot"}'))
    assert (type(odd), odd.code, odd.status) == (RemoteError, "teapot", 418)
    assert fault_of(answer(502, b"<html>")).code == "http_502"
    assert isinstance(fault_of(Lost("refused", sent=False)), UnreachableError)


def run_pace(pace, seconds, chunk_max):
    """Drive a pace against a server that answers at once; returns the items sent."""
    now, sent = 0.0, 0
    while now < seconds:
        count, wait_s = pace.take(chunk_max, now=now)
        if count:
            sent += count
            pace.answered(taken=count, refused=0)
        else:
            now += max(wait_s, 1e-6)
    return sent


@pytest.mark.parametrize("rate", [1.0, 7.0, 50.0, 300.0, 5000.0])
@pytest.mark.parametrize("chunk_max", [1, 200])
def test_the_rate_is_kept_within_5_percent(rate, chunk_max):
    seconds = max(3.0, 40 / rate)
    sent = run_pace(Pace(rate_per_s=rate, in_flight_max=1000), seconds, chunk_max)
    assert sent == pytest.approx(rate * seconds, rel=0.05)


def test_a_refusal_holds_the_whole_producer():
    pace = Pace(rate_per_s=None, in_flight_max=100)
    assert pace.take(10, now=0.0) == (10, 0.0)
    pace.answered(taken=0, refused=10)
    pace.hold(3.0, now=0.0)
    assert pace.take(10, now=2.9) == (0, pytest.approx(0.1))
    assert pace.take(10, now=3.0)[0] == 10


def test_after_refusals_the_items_in_flight_shrink_and_grow_back():
    pace = Pace(rate_per_s=None, in_flight_max=64)
    for second in range(10):
        pace.hold(0.5, now=float(second))
    assert pace.take(64, now=20.0)[0] == 1
    pace.answered(taken=1, refused=0)
    assert pace.take(64, now=20.0)[0] == 2
    assert pace.take(64, now=20.0) == (0, float("inf"))
    pace.answered(taken=2, refused=0)
    for _ in range(6):
        pace.answered(taken=pace.take(64, now=20.0)[0], refused=0)
    assert pace.take(64, now=20.0)[0] == 64
