"""An upstream that takes no calls: requests are told so, and when to come back; nobody hears that it was late."""

import pytest

from forebay.core.admission import Reason, Rejected
from forebay.core.replicas import Shut
from forebay.core.requests import End, Request
from forebay.core.shut import SHUT_WAIT_S, shut
from tests.core.test_upstream_requests import CALL_S, a_rig, calls

FULL = "its gate is closed: 12 (opens at 5)"


def close(rig, *, for_s=1.0, since=None, sure=False):
    """It takes no calls for `for_s` at least: what the node says at each look."""
    replica = rig.d.hand.replicas[1]
    replica.limit_calls(0)
    began = rig.now if since is None else since
    shut(rig.d.hand, replica, Shut(began, rig.now + for_s, FULL, sure), now=rig.now)


def open_it(rig):
    replica = rig.d.hand.replicas[1]
    replica.limit_calls(4)
    shut(rig.d.hand, replica, None, now=rig.now)


def busy(verdict):
    return isinstance(verdict, Rejected) and verdict.reason is Reason.UPSTREAM_BUSY


def test_a_request_that_cannot_be_in_time_when_it_may_open_is_refused_at_the_door_with_the_reason():
    rig = a_rig(4)
    close(rig, for_s=1.0)
    refused = rig.ask(deadline_s=1.5)
    assert busy(refused) and refused.told == FULL, "a second until the next look, and a second for the call"
    assert 1.0 <= refused.retry_after_s <= 2.0


def test_one_that_has_the_time_waits_for_the_next_look_and_is_called_when_it_is_open():
    rig = a_rig(4)
    close(rig)
    assert isinstance(rig.ask(deadline_s=60.0), Request) and not calls(rig)
    rig.now += 1.0
    open_it(rig)
    rig.poll()
    assert len(calls(rig)) == 1
    rig.done(*calls(rig), after=CALL_S)
    assert [ended.end for ended in rig.told.values()] == [End.DONE]


def test_one_that_waits_hears_it_as_soon_as_the_next_look_is_too_late_and_not_at_its_deadline():
    rig = a_rig(4)
    close(rig)
    assert isinstance(rig.ask(deadline_s=3.5), Request)
    rig.now += 1.0
    close(rig, since=rig.now - 1.0)
    rig.poll()
    assert not rig.told, "three seconds and a half would do if it opened then"
    rig.now += 1.0
    close(rig, since=rig.now - 2.0)
    rig.poll()
    (ended,) = rig.told.values()
    assert (ended.end, ended.error.code, ended.error.message) == (End.BARRED, "upstream_busy", FULL)
    assert ended.retry_after_s >= 1.0


def test_a_deadline_that_passes_before_the_look_is_back_is_told_the_same():
    rig = a_rig(4)
    rig.d.hand.tasks["t"].fit = type(rig.d.hand.tasks["t"].fit)()  # nothing is known of its calls
    close(rig, for_s=0.5)
    assert isinstance(rig.ask(deadline_s=1.0), Request)
    rig.poll(after=1.1)
    assert [(one.end, one.error.code) for one in rig.told.values()] == [(End.BARRED, "upstream_busy")]


def test_closed_for_long_nothing_is_let_in_to_wait_for_it_whatever_its_deadline():
    rig = a_rig(4)
    since = rig.now
    close(rig)
    assert isinstance(rig.ask(deadline_s=60.0), Request)
    rig.now += SHUT_WAIT_S + 1.0
    close(rig, since=since)
    refused = rig.ask(deadline_s=60.0)
    assert busy(refused) and refused.retry_after_s >= SHUT_WAIT_S + 1.0, (
        "it is not likely to open at the next look"
    )
    assert not rig.told, "who was let in before waits on"


def test_one_that_said_when_it_takes_calls_again_is_waited_for_by_those_who_have_the_time():
    rig = a_rig(4)
    close(rig, for_s=30.0, sure=True)
    rig.now += SHUT_WAIT_S + 1.0
    assert isinstance(rig.ask(deadline_s=60.0), Request)
    refused = rig.ask(deadline_s=20.0)
    assert busy(refused) and refused.retry_after_s >= 27.0


def test_refused_callers_are_told_different_times():
    rig = a_rig(4)
    close(rig, for_s=0.1)
    told = [rig.offer(deadline_s=0.2).retry_after_s for _ in range(20)]
    assert len(set(told)) >= 19 and told == sorted(told), "one after the other, as calls end"


@pytest.mark.parametrize("sure", [True, False])
def test_once_it_is_open_nobody_is_refused_for_it(sure):
    rig = a_rig(4)
    close(rig, sure=sure)
    open_it(rig)
    rig.ask(deadline_s=2.0)
    assert len(calls(rig)) == 1


def test_one_whose_call_is_out_when_it_closes_is_late_at_its_deadline_as_ever():
    rig = a_rig(4)
    rig.ask(deadline_s=3.0)
    close(rig, for_s=30.0)
    rig.poll(after=3.1)
    assert [one.end for one in rig.told.values()] == [End.LATE]
