"""The Dispatcher: when a batch starts, and how runs are measured."""

import pytest

from forebay.core.actions import KillReason
from forebay.core.batching import Trigger
from tests.core.dispatching import BATCH, tags_of
from tests.sim.rig import Rig, a_spec


def busy_batch_rig(replicas=2, **fields):
    """One replica runs a batch, so that the next waits for company."""
    rig = Rig(a_spec(**{**BATCH, **fields}), replicas=replicas)
    rig.learn(1.0, items=4)
    (run,) = rig.lease(count=1)
    assert run.trigger is Trigger.IDLE
    return rig


def test_an_idle_task_starts_at_once():
    rig = Rig(a_spec(**BATCH))
    (run,) = rig.lease(count=2)
    assert (len(run.items), run.trigger, run.singles) == (2, Trigger.IDLE, False)


def test_a_full_batch_starts_at_once_and_is_never_larger_than_its_bound():
    rig = busy_batch_rig()
    rig.ring()
    assert rig.lease(count=3) == []
    rig.ring()
    (run,) = rig.lease(count=1)
    assert (len(run.items), run.trigger) == (4, Trigger.SIZE)


def test_a_batch_is_never_larger_than_its_bound_however_much_is_in_hand():
    rig = Rig(a_spec(**BATCH), replicas=3)
    rig.learn(1.0, items=4)
    (first,) = rig.lease(count=1)
    rig.ring()
    sent = [first, *rig.lease(count=8)]
    assert [len(run.items) for run in sent[1:]] == [4, 4]


def test_a_batch_starts_when_its_oldest_has_waited():
    rig = busy_batch_rig()
    rig.ring()
    assert rig.lease(count=2) == []
    assert rig.d.wake_at() == pytest.approx(rig.now + 0.02)
    assert rig.poll(after=0.019) == []
    (run,) = rig.poll(after=0.0011)
    assert (len(run.items), run.trigger) == (2, Trigger.WAIT)


def test_a_batch_closes_early_for_the_tightest_deadline_in_it():
    rig = busy_batch_rig(batch_wait_s=10.0)
    rig.ring()
    rig.lease(count=1)
    rig.ring()
    rig.lease(count=1, deadline_at=rig.now + 3.0)
    start = rig.now
    while not (runs := rig.poll()):
        rig.now = rig.d.wake_at()
    (run,) = runs
    assert start + 2.0 < rig.now < start + 3.0 - 0.4  # a run of two takes about half a second
    assert (len(run.items), run.trigger) == (2, Trigger.DEADLINE)


def test_a_batch_that_is_due_waits_for_a_replica_without_spinning():
    rig = Rig(a_spec(**BATCH))
    rig.learn(0.1, items=1)
    rig.lease(count=1)
    rig.ring()
    rig.poll(after=0.097)
    assert rig.lease(count=2) == []
    assert rig.poll(after=0.04) == []
    (run,) = rig.done(1)
    assert (len(run.items), run.trigger) == (2, Trigger.WAIT)


def test_a_batch_that_waited_for_a_replica_alone_does_not_make_the_next_one_wait():
    rig = Rig(a_spec(**BATCH))
    rig.lease(count=1)
    assert rig.d.hand.tasks["t"].wait_pays
    rig.ring()
    rig.done(1, after=0.001)
    assert rig.lease(count=1) == []
    (run,) = rig.poll(after=0.02)
    assert not rig.d.hand.tasks["t"].wait_pays and len(run.items) == 1


def test_a_lone_caller_pays_the_wait_at_most_once():
    rig = Rig(a_spec(**BATCH))
    waited = 0
    for _ in range(10):
        if not rig.asked:
            rig.ring()
        runs = rig.lease(count=1)
        if not runs:
            waited += 1
            runs = rig.poll(after=0.021)
        rig.done(*tags_of(runs)[0], after=0.005)
    assert waited <= 1


def test_company_makes_the_wait_pay_again():
    rig = Rig(a_spec(**BATCH))
    rig.d.hand.tasks["t"].wait_pays = False
    rig.lease(count=2)
    assert rig.d.hand.tasks["t"].wait_pays


def test_another_pass_over_a_failed_batch_starts_its_time_anew():
    rig = Rig(a_spec(**BATCH, timeout_s=1.0))
    rig.lease(count=4)
    rig.now += 0.9
    rig.d.passed(1, now=rig.now)
    rig.d.passed(99, now=rig.now)  # one that is gone
    rig.poll(after=0.9)
    assert rig.kills == []
    rig.poll(after=0.1)
    assert rig.kills == [(1, KillReason.TIMEOUT)]
