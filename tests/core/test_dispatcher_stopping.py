"""The Dispatcher: cancels, deadlines, lost leases, renewals, drains and recycling."""

import pytest

from forebay.core.actions import KillReason
from forebay.core.dispatcher import CANCEL_GRACE_S
from forebay.core.job import Hold
from forebay.core.lateness import LATE_S
from forebay.core.lifecycle import State
from forebay.core.renewing import CHECKPOINT_S, PROGRESS_S
from forebay.core.settle import SettlePolicy
from forebay.core.stopping import GIVE_BACK_S
from tests.core.dispatching import BATCH, tags_of
from tests.sim.rig import BAD, Rig, a_spec


def a_frame(count=3, **fields):
    rig = Rig(**fields)
    rig.learn(0.001)
    rig.give([])
    rig.ring()
    rig.lease(count=count)
    return rig


def held_rig():
    """One runs, one waits in hand."""
    rig = Rig()
    rig.learn(0.1)
    rig.lease()
    rig.poll(after=0.098)
    rig.lease()
    return rig


def test_cancel_of_one_that_waits_in_hand_is_immediate():
    rig = held_rig()
    rig.cancel(2)
    assert rig.events() == [("j2", "cancelled")] and rig.cancels == []


def test_cancel_of_one_that_waits_in_a_frame_ends_when_it_is_given_back():
    rig = a_frame()
    rig.cancel(2)
    assert rig.cancels == [(1, 2)] and rig.ended == []
    rig.returned(2)
    assert rig.events() == [("j2", "cancelled")]
    rig.done(1, 3)
    assert rig.events()[1:] == [("j1", "completed"), ("j3", "completed")]


def test_a_cancelled_handler_that_answers_ends_cancelled():
    rig = Rig()
    rig.lease()
    rig.cancel(1)
    rig.done(1)
    assert rig.events() == [("j1", "cancelled")]  # whoever asked was told that it will be


def test_a_cancelled_handler_that_fails_ends_cancelled():
    rig = Rig()
    rig.lease()
    rig.cancel(1)
    rig.done(1, error=BAD)
    assert rig.events() == [("j1", "cancelled")]


def test_a_handler_that_ignores_cancel_is_killed_after_the_grace():
    rig = Rig()
    rig.lease()
    rig.cancel(1)
    rig.poll(after=CANCEL_GRACE_S - 0.1)
    assert rig.kills == []
    rig.poll(after=0.1)
    assert rig.kills == [(1, KillReason.CANCEL)]
    rig.died(1)
    assert rig.events() == [("j1", "cancelled")]


def test_what_waits_behind_one_to_be_killed_is_asked_back_first():
    rig = a_frame()
    rig.cancel(1)
    rig.backs.clear()
    rig.poll(after=LATE_S)  # late: asked back for that reason
    assert rig.backs == [1]
    rig.poll(after=CANCEL_GRACE_S - LATE_S)
    assert rig.backs == [1, 1] and rig.kills == []
    rig.poll(after=GIVE_BACK_S)  # the child gave nothing back
    assert rig.kills == [(1, KillReason.CANCEL)]
    rig.died(1)
    assert dict(rig.events()) == {"j1": "cancelled", "j2": "released", "j3": "released"}


def test_a_cancelled_item_behind_another_is_given_up_after_the_grace():
    rig = a_frame(count=2)
    rig.cancel(2)
    rig.poll(after=CANCEL_GRACE_S)
    assert rig.events() == [("j2", "cancelled")] and rig.cancels == [(1, 2), (1, 2)]
    assert rig.kills == []
    rig.done(1, 2)
    assert rig.events()[1:] == [("j1", "completed")]


def test_cancel_in_a_batch_with_mates_drops_the_output_and_spares_the_mates():
    rig = Rig(a_spec(**BATCH))
    rig.lease(count=2)
    rig.cancel(1)
    rig.poll(after=CANCEL_GRACE_S)
    assert rig.events() == [("j1", "cancelled")] and rig.kills == []
    rig.done(1, 2)
    assert rig.events() == [("j1", "cancelled"), ("j2", "completed")]


def test_a_batch_that_nobody_waits_for_any_more_is_killed():
    rig = Rig(a_spec(**BATCH))
    rig.lease(count=2, deadline_at=rig.now + 1.0)
    rig.poll(after=1.0)
    assert rig.kills == [(1, KillReason.DEADLINE)]
    rig.died(1)
    assert rig.events() == [("j1", "deadline_passed"), ("j2", "deadline_passed")]


def test_a_deadline_that_passes_in_hand_ends_the_job_there():
    rig = held_rig()
    rig.d.hand.tasks["t"].held.clear()
    rig.d.hand.items.pop(2)
    rig.ring()
    rig.lease(deadline_at=rig.now + 0.05) if rig.asked else None
    rig.poll(after=0.05)
    assert rig.events() == [("j3", "deadline_passed")] and rig.kills == []


def test_a_deadline_that_passes_while_running_kills():
    rig = Rig()
    rig.lease(deadline_at=rig.now + 0.2)
    assert rig.d.wake_at() == rig.now + 0.2
    rig.poll(after=0.2)
    assert rig.kills == [(1, KillReason.DEADLINE)]
    rig.died(1)
    assert rig.events() == [("j1", "deadline_passed")]


def test_a_head_past_its_deadline_that_is_given_back_ends_expired():
    rig = Rig()
    rig.learn(0.001)
    rig.give([])
    rig.ring()
    rig.give(rig.jobs(1, deadline_at=rig.now + 0.1) + rig.jobs(2))
    rig.poll(after=0.1)
    assert rig.backs == [1]
    rig.returned(3, 2, 1)
    assert dict(rig.events())["j1"] == "deadline_passed"


def test_a_second_reason_to_kill_changes_nothing():
    rig = Rig(a_spec(timeout_s=0.2))
    rig.lease(deadline_at=rig.now + 0.2)
    rig.poll(after=0.2)
    rig.d.abandon()
    rig.poll()
    assert rig.kills == [(1, KillReason.DEADLINE)]


def test_a_cancelled_job_whose_child_dies_before_it_started_ends_cancelled():
    rig = Rig(replicas=2)
    rig.learn(0.002)
    rig.give([])
    rig.ring()
    while rig.asked:
        rig.lease(count=rig.asked["t"])
    last = [run for run in rig.ran if run.replica == 1][-1]
    tag = tags_of([last])[0][-1]
    rig.cancel(tag)
    rig.died(1)
    assert (f"j{tag}", "cancelled") in rig.events()


def test_a_lost_lease_is_forgotten_whether_it_waits_or_runs():
    rig = held_rig()
    rig.d.renew_now()
    rig.poll()
    rig.answer(Hold.LOST, Hold.LOST)
    assert rig.cancels == [(1, 1)] and rig.ended == []
    rig.done(1)  # comes late
    assert rig.ended == [] and rig.d.idle
    assert rig.asked == {"t": 1}


def test_answers_about_items_that_are_gone_are_dropped():
    rig = Rig()
    rig.lease()
    rig.d.renew_now()
    rig.poll()
    rig.done(1)
    rig.answer(Hold.CANCEL)
    assert rig.events() == [("j1", "completed")] and rig.cancels == []


def test_cancel_is_asked_once():
    rig = Rig()
    rig.lease()
    rig.cancel(1)
    rig.cancel(1)
    assert rig.cancels == [(1, 1)]


@pytest.mark.parametrize("at", [0.1, 2.0, 4.9, 5.1, 9.9])
def test_every_lease_meets_two_renewals_before_it_ends(at):
    rig = Rig(lease_s=30.0)
    start = rig.now
    rig.poll(after=at)
    rig.lease()
    until = rig.now + 30.0
    while rig.now < until - 0.01:
        rig.poll(after=min(0.5, until - rig.now - 0.01))
    assert len(rig.renews) >= 2, start  # neither was answered


def test_a_renewed_lease_is_left_alone_for_a_third_of_its_time():
    rig = Rig(lease_s=30.0)
    rig.lease()
    rig.poll(after=10.0)
    rig.answer(Hold.HELD)
    rig.poll(after=9.9)
    assert len(rig.renews) == 1
    rig.poll(after=0.1)
    assert len(rig.renews) == 2


def test_progress_goes_along_at_most_twice_a_second():
    rig = Rig()
    rig.lease()
    for step in range(10):
        rig.d.progressed(1, b"%d" % step)
        rig.d.progressed(99, b"?")
        rig.poll(after=0.1)
    assert 2 <= len(rig.renews) <= 3
    assert rig.renews[0].claims[0].progress == b"0"
    rig.d.progressed(1, b"x")
    assert rig.d.poll(now=rig.now) == [] and rig.d.wake_at() <= rig.now + PROGRESS_S
    rig.done(1)
    rig.poll(after=1.0)
    assert len(rig.renews) <= 3  # of one that ended


def test_progress_in_a_renewal_pass_is_asked_once():
    rig = Rig()
    rig.lease()
    rig.d.progressed(1, b"5")
    rig.poll(after=10.0)
    assert [len(r.claims) for r in rig.renews] == [1]


def test_a_checkpoint_is_stored_soon_and_the_newest_counts():
    rig = Rig()
    rig.lease()
    rig.poll()
    for step in range(10):
        rig.d.checkpointed(1, b"%d" % step)
        rig.d.checkpointed(99, b"?")
        rig.poll(after=CHECKPOINT_S / 2)
    stored = [claim.checkpoint for renew in rig.renews for claim in renew.claims if claim.checkpoint]
    assert 4 <= len(stored) <= 6 and stored[0] == b"0"
    rig.d.checkpointed(1, b"x")
    assert rig.d.wake_at() is None or rig.d.poll(now=rig.now) == []
    assert rig.d.wake_at() <= rig.now + CHECKPOINT_S


def test_every_renewal_brings_the_newest_checkpoint_again():
    rig = Rig()
    rig.lease()
    rig.d.checkpointed(1, b"7")
    for _ in range(3):
        rig.poll(after=rig.d.lease_s / 3)
    assert [renew.claims[0].checkpoint for renew in rig.renews[-3:]] == [b"7"] * 3


@pytest.mark.parametrize("end", ["fails", "dies", "is handed back"])
def test_an_attempt_that_ends_brings_its_newest_checkpoint_along(end):
    rig = Rig()
    rig.lease()
    rig.d.checkpointed(1, b"7")
    if end == "fails":
        rig.done(1, error=BAD)
    elif end == "dies":
        rig.died(1)
    else:
        rig.d.abandon()
        rig.poll()
        rig.died(1)
    rig.poll()
    assert [t.checkpoint for t in rig.ended] == [b"7"]


def test_the_end_of_a_job_needs_no_checkpoint():
    rig = Rig()
    rig.lease()
    rig.d.checkpointed(1, b"7")
    rig.done(1)
    assert [t.checkpoint for t in rig.ended] == [None]


def test_drain_hands_back_what_has_not_started_and_costs_no_attempt():
    rig = a_frame()
    rig.d.drain(now=rig.now)
    rig.d.drain(now=rig.now)
    rig.poll()
    assert rig.backs == [1]
    rig.returned(2, 3)
    assert [(t.job_id, t.event.value, t.attempt) for t in rig.ended] == [
        ("j2", "released", 0),
        ("j3", "released", 0),
    ]
    assert not rig.d.idle
    rig.done(1)
    assert rig.d.idle and rig.asked == {}


def test_drain_hands_back_what_waits_and_what_still_arrives():
    rig = held_rig()
    rig.d.drain(now=rig.now)
    rig.poll()
    assert rig.events() == [("j2", "released")]
    rig = Rig()
    rig.d.drain(now=rig.now)
    rig.lease()
    assert rig.events() == [("j1", "released")] and rig.ran == []


def test_in_a_drain_each_replica_goes_when_it_is_idle_and_not_before():
    rig = Rig(replicas=2)
    rig.lease(count=1)
    rig.d.drain(now=rig.now)
    rig.poll()
    assert rig.stops == [2]
    rig.done(1)
    rig.poll()
    assert rig.stops == [2, 1]


def test_abandon_kills_what_runs_and_charges_nothing():
    rig = Rig(replicas=2)
    rig.lease(count=1)
    rig.d.drain(now=rig.now)
    rig.d.abandon()
    rig.poll()
    assert rig.kills == [(1, KillReason.STOP)]
    rig.died(1)
    assert [(t.event.value, t.attempt) for t in rig.ended] == [("released", 0)]


def test_hand_backs_have_a_bound_of_their_own():
    rig = Rig(a_spec(settle=SettlePolicy(releases_max=3)))
    rig.d.drain(now=rig.now)
    rig.lease(releases=3)
    assert rig.ended[0].state is State.DEAD and rig.ended[0].error.code == "released_too_often"


def test_a_worn_replica_is_stopped_when_empty_and_loses_nothing():
    rig = Rig(a_spec(recycle_after=2))
    for tag in (1, 2):
        if not rig.asked:
            rig.ring()
        rig.lease()
        assert rig.stops == []
        rig.done(tag)
    assert rig.stops == [1] and rig.asked == {}
    rig.died(1)
    assert [e for _, e in rig.events()] == ["completed", "completed"]


def test_a_retired_replica_finishes_first():
    rig = Rig()
    rig.lease()
    rig.d.retire(1)
    rig.d.retire(99)
    rig.poll()
    assert rig.stops == []
    rig.done(1)
    assert rig.stops == [1]
