"""Requests to an upstream are judged by the calls at once that were found for it, not by what would be allowed."""

import pytest

from forebay.core.admission import Reason, Rejected
from forebay.core.codel import Discipline
from forebay.core.requests import Request
from forebay.core.shedding import item_s
from tests.core.serving import RequestRig
from tests.sim.rig import a_spec

CALL_S = 1.0


def a_rig(calls, **fields):
    rig = RequestRig(a_spec(kind="upstream", concurrency=256, **fields))
    for _ in range(32):
        rig.d.hand.tasks["t"].fit.observe(1, CALL_S)
    rig.d.hand.tasks["t"].last_run_at = rig.now
    rig.d.hand.replicas[1].limit_calls(calls)
    return rig


def taken(verdicts):
    return sum(isinstance(one, Request) for one in verdicts)


def calls(rig):
    """Return the tags of the calls that are out, the first first."""
    return [tag for tag, item in rig.d.hand.items.items() if item.run is not None]


def test_of_a_hundred_at_once_those_are_let_in_that_four_calls_at_a_time_can_do():
    rig = a_rig(4)
    for _ in range(4):  # one ends every quarter of a second
        rig.ask(deadline_s=60.0)
        rig.poll(after=CALL_S / 4)
    verdicts = [rig.offer(deadline_s=5.0) for _ in range(100)]
    assert 12 <= taken(verdicts) <= 20, "four a second for five seconds, less what is kept free"
    refused = [one for one in verdicts if isinstance(one, Rejected)]
    assert {one.reason for one in refused} == {Reason.TOO_LATE}
    rig.done(calls(rig)[0])
    while calls(rig):
        rig.done(calls(rig)[0], after=CALL_S / 4)
    assert list(rig.ends().values()) == ["done"] * (4 + taken(verdicts)), "and each of them in time"


def test_who_is_refused_is_told_to_come_back_at_the_pace_at_which_calls_end():
    rig = a_rig(4)
    assert item_s(rig.d.hand, rig.d.hand.tasks["t"]) == pytest.approx(CALL_S / 4, rel=0.01)
    rig.d.hand.replicas[1].limit_calls(8)
    assert item_s(rig.d.hand, rig.d.hand.tasks["t"]) == pytest.approx(CALL_S / 8, rel=0.01)


def test_while_it_pauses_what_was_found_before_counts():
    rig = a_rig(4)
    rig.d.hand.replicas[1].limit_calls(0)
    verdicts = [rig.ask(deadline_s=5.0) for _ in range(100)]
    assert 12 <= taken(verdicts) <= 24 and not rig.ran, "it is called no more, and waited for"
    rig.d.hand.replicas[1].limit_calls(4)
    assert sum(len(run.items) for run in rig.poll()) == 4


def test_while_it_takes_no_calls_no_job_is_leased_beside_the_requests_that_wait():
    rig = a_rig(4)
    rig.poll()
    rig.give([])
    rig.d.hand.replicas[1].limit_calls(0)
    rig.ask(deadline_s=60.0)
    rig.d.knock("t")
    rig.poll()
    assert rig.asked == {}
    rig.d.hand.replicas[1].limit_calls(4)
    rig.poll()
    assert rig.asked


@pytest.mark.parametrize("discipline", ["deadline", "codel", "newest"])
def test_a_discipline_keeps_the_waits_before_an_upstream_short(discipline):
    rig = a_rig(4, discipline=Discipline(discipline), wait_target_s=0.5, wait_interval_s=2.0)
    verdicts = []
    for _ in range(40):
        verdicts += [rig.offer(deadline_s=60.0) for _ in range(8)]  # twice what it can do
        rig.poll()
        rig.done(*calls(rig), after=CALL_S)
    done = [one.request for one in rig.told.values() if one.end.value == "done"]
    waits = [one.started_at - one.job.created_at for one in done[-40:]]
    assert len(done) >= 39 * 4, "it is never idle"
    if discipline == "deadline":
        assert max(waits) > 10.0
    else:
        assert max(waits) <= 2.0 + 2 * CALL_S
        assert any(one.end.value == "shed" for one in rig.told.values())
