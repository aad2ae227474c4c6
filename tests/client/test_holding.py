"""What the clients do with a server that takes few of their calls: predict is not sent, a submit waits."""

import asyncio

import pytest

from forebay import AsyncClient, Client
from forebay.client import HeldBackError, bulk, plans, wire
from forebay.client.encode import Options
from forebay.client.holding import HOLDS_MAX, Holding, pressed
from forebay.client.policy import Known
from forebay.client.wire import Answer, Call, Lost
from forebay.core.accept_ratio import TRICKLE_BURST
from forebay.errors import InfeasibleError, InvalidError, NotFoundError, UnknownTaskError
from tests.client.basin import Basin
from tests.client.test_plans import Hand, full, ok

REFUSED = (429, {}, {"code": "cannot_meet_deadline", "detail": "no", "retry_after_s": 0.5})
CALL = Call("POST", "/v1/jobs", kind="T")


def refusing(known, kind="T", calls=1_000):
    """Make a client know a server that refuses what is of this kind, the trickle used up."""
    for _ in range(int(TRICKLE_BURST) + 1):
        known.holding.counted(kind, taken=0, refused=calls, now=0.0, after_s=3.0)
        known.holding.ask(kind, now=0.0, draw=0.0)
    return known


def still(client):
    """Stop the clock of a client: it has one trickle, however slow this machine is."""
    client.terms = client.terms._replace(now=lambda: 0.0)
    return client


def outcomes(client, count, **options):
    found = []
    for _ in range(count):
        try:
            found.append(client.predict("Model", 1, **options))
        except (HeldBackError, InfeasibleError) as fault:
            found.append(fault)
    return found


def test_predict_is_held_back_after_many_refusals_and_says_so():
    with Basin() as basin, Client(basin.url) as client:
        basin.scripts = [REFUSED] * 400
        still(client)
        found = outcomes(client, 400, deadline=0.2)
        held = [one for one in found if isinstance(one, HeldBackError)]
        asked = len(basin.paths("POST", "/v1/predict"))
        assert held and asked == 400 - len(held)
        assert not any(isinstance(one, HeldBackError) for one in found[: int(TRICKLE_BURST)])
        assert held[-1].code == "held_back" and held[-1].retry_after_s == 0.5
        assert "not sent: of the last " in str(held[-1]) and str(held[-1]).endswith("the server took 0")


def test_what_is_unlike_the_refused_is_sent():
    with Basin() as basin, Client(basin.url) as client:
        basin.scripts = [REFUSED] * 400
        outcomes(still(client), 400, deadline=0.2)
        basin.scripts = [(200, {}, 1)] * 300
        assert outcomes(client, 100, deadline=5.0) == [1] * 100, "another deadline"
        assert outcomes(client, 100, deadline=0.2, priority="high") == [1] * 100, "another priority"
        assert [client.predict("Other", 1) for _ in range(100)] == [1] * 100, "another task"


@pytest.mark.parametrize(("budget", "at_once"), [("100/s", 200), ("30/m", 1), (5, 10)])
def test_a_retry_budget_says_how_many_are_sent_in_any_case(budget, at_once):
    with Basin() as basin, Client(basin.url, retry_budget=budget) as client:
        basin.scripts = [REFUSED] * 400
        found = outcomes(still(client), 300, deadline=0.2)
        first_held = next(n for n, one in enumerate(found) if isinstance(one, HeldBackError))
        assert at_once <= first_held
        assert sum(isinstance(one, HeldBackError) for one in found) >= 300 - at_once - 40


@pytest.mark.parametrize("value", ["0/s", "ten", -1])
def test_a_retry_budget_that_is_no_rate_is_refused_in_one_sentence(value):
    with pytest.raises(InvalidError, match="^retry_budget: "):
        Client(retry_budget=value)


def test_hold_back_off_sends_all():
    with Basin() as basin, Client(basin.url, hold_back=False) as client:
        basin.scripts = [REFUSED] * 200
        assert not any(isinstance(one, HeldBackError) for one in outcomes(still(client), 200, deadline=0.2))
        assert len(basin.paths("POST", "/v1/predict")) == 200


def test_the_client_that_awaits_holds_back_too():
    async def run(url):
        async with AsyncClient(url) as client:
            still(client)
            calls = [client.predict("Model", 1, deadline=0.2) for _ in range(50)]
            await asyncio.gather(*calls, return_exceptions=True)
            calls = [client.predict("Model", 1, deadline=0.2) for _ in range(200)]
            return await asyncio.gather(*calls, return_exceptions=True)

    with Basin() as basin:
        basin.scripts = [REFUSED] * 250
        found = asyncio.run(run(basin.url))
        held = sum(isinstance(one, HeldBackError) for one in found)
        assert held and len(basin.paths("POST", "/v1/predict")) == 250 - held


@pytest.mark.parametrize("draw", [0.0, 0.5])
def test_a_submit_waits_a_few_times_and_is_then_sent_whatever_the_ratio(draw):
    hand = Hand([ok({"job_id": "a"}, 202)], known=refusing(Known()))
    hand.terms = hand.terms._replace(now=lambda: 0.0, draw=lambda: draw)
    assert hand.run(plans.ask(wire.submit_call(b"{}", "k", task="T"), hand.terms))["job_id"] == "a"
    assert len(hand.calls) == 1 and len(hand.pauses) == HOLDS_MAX
    assert hand.pauses == pytest.approx([n * (0.75 + 0.25 * draw) for n in (0.1, 0.2, 0.4)])


def test_a_submit_that_has_no_time_to_wait_is_sent_at_once():
    hand = Hand([ok({"job_id": "a"}, 202)], known=refusing(Known()), retry_for_s=0.01)
    assert hand.run(plans.ask(wire.submit_call(b"{}", "k", task="T"), hand.terms))["job_id"] == "a"
    assert not hand.pauses


def test_a_refused_submit_comes_back_when_it_was_told_and_is_not_held_then():
    hand = Hand([full(2.0), ok({"job_id": "a"}, 202)], known=refusing(Known()))
    hand.terms = hand.terms._replace(now=lambda: 0.0)
    hand.run(plans.ask(wire.submit_call(b"{}", "k", task="T"), hand.terms))
    assert len(hand.pauses) == HOLDS_MAX + 1 and 2.0 <= hand.pauses[-1] <= 2.5


def test_verbs_that_ask_for_no_work_are_never_held_back():
    hand = Hand([ok({"items": []})], known=refusing(Known(), kind=""))
    hand.run(plans.ask(wire.show_call("a"), hand.terms))
    hand.run(plans.whole("/v1/tasks", hand.terms))
    assert not hand.pauses


def test_many_payloads_wait_as_one():
    lines = ok({"line": 1, "status": 202, "job_id": "a"})
    hand = Hand([lines], known=refusing(Known()))
    hand.terms = hand.terms._replace(now=lambda: 0.0)
    (verdict,) = hand.run(bulk.submit_payloads("T", [1], Options(), hand.terms))
    assert verdict.job_id == "a" and len(hand.pauses) == HOLDS_MAX
    hand.pauses.clear()
    hand.run(bulk.submit_payloads("U", [1], Options(), hand.terms))
    assert not hand.pauses


def test_a_map_holds_its_lines_and_ends_all_the_same():
    with Basin() as basin, Client(basin.url) as client:
        known = client.terms.known
        now = client.terms.now()
        for _ in range(int(TRICKLE_BURST) + 1):
            known.holding.counted("echo", taken=0, refused=100_000, now=now)
            known.holding.ask("echo", now=now, draw=0.0)
        assert list(client.map("echo", range(30))) == list(range(30))
        assert len(basin.jobs) == 30


@pytest.mark.parametrize(
    ("reply", "so"),
    [
        (Answer(200, {}, b"{}"), False),
        (Answer(404, {}, b"{}"), False),
        (Answer(422, {}, b"{}"), False),
        (Answer(500, {}, b"{}"), False),
        (Answer(504, {}, b'{"code": "deadline_passed"}'), False),  # it was taken
        (Answer(429, {}, b'{"code": "queue_full"}'), True),
        (Answer(429, {}, b'{"code": "over_budget"}'), False),  # a turn of its own
        (Answer(503, {}, b"<html>"), True),
        (Lost("no answer in time", sent=True), True),
        (Lost("refused", sent=False), False),
    ],
)
def test_only_a_server_that_is_short_of_room_counts(reply, so):
    assert pressed(reply) is so
    holding = Holding()
    for _ in range(1_000):
        holding.heard(CALL, reply, now=0.0)
    asked = [holding.ask("T", now=0.0, draw=0.5) for _ in range(100)]
    assert any(one is not None for one in asked) is so


def test_errors_that_are_no_want_of_room_are_raised_as_ever():
    with Basin() as basin, Client(basin.url) as client:
        basin.scripts = [(404, {}, {"code": "unknown_task", "detail": "no"})] * 60
        for _ in range(60):
            with pytest.raises((UnknownTaskError, NotFoundError)):
                client.predict("nope", 1)
        assert len(basin.paths("POST", "/v1/predict")) == 60
