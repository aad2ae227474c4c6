"""The Dispatcher: whatever happens, the books balance."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core.job import Hold
from forebay.core.stopping import FAILURES_IN_ROW_MAX
from tests.sim.rig import BAD, Rig, a_spec


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 11), st.integers(0, 7), st.sampled_from([0.0, 0.001, 0.02, 0.3, 4.0, 11.0])),
        max_size=60,
    ),
    st.integers(1, 3),
    st.sampled_from([1, 4]),
    st.sampled_from([1, 1, 3]),
)
def test_whatever_happens_every_lease_ends_at_most_once_and_the_books_balance(steps, replicas, batch, side):
    one = a_spec(
        "a", batch_max=batch, batch_wait_s=0.01, concurrency=side if batch == 1 else 1, timeout_s=5.0
    )
    rig = Rig(one, a_spec("b", timeout_s=2.0), replicas=replicas)
    taken, next_replica = 0, 50
    for what, which, after in steps:
        rig.poll(after=after)
        live = sorted(rig.d.hand.items)
        tag = live[which % len(live)] if live else 999
        sent = {t for r in rig.d.hand.replicas.values() for run in r.runs for t in run.items}
        match what:
            case 0 | 1 | 2 if rig.asked:
                task = sorted(rig.asked)[which % len(rig.asked)]
                count = min(which, rig.asked[task])
                deadline_at = rig.now + 0.5 if which == 3 else None
                rig.lease(task, count, suspect=which == 5, deadline_at=deadline_at)
                taken += count
            case 3 | 4 if sent:
                rig.done(sorted(sent)[which % len(sent)])
            case 5:
                rig.done(tag, error=BAD)
                # An item that waits in hand was never run: take it as done all the same.
            case 6 if rig.d.hand.replicas:
                rig.died(sorted(rig.d.hand.replicas)[which % len(rig.d.hand.replicas)])
            case 7:
                rig.d.replica_ready(next_replica)
                next_replica += 1
            case 8 if live:
                rig.cancel(tag)
            case 9 if sent:
                rig.returned(*[t for t in sorted(sent) if t % 2])
            case 10:
                rig.d.renew_now()
                rig.poll()
                if rig.renews:
                    rig.answer(*[Hold.LOST if t == tag else Hold.HELD for t in rig.renews[-1].tags])
            case 11:
                rig.ring("ab"[which % 2])
    ids = [t.job_id for t in rig.ended]
    assert len(ids) == len(set(ids))
    rig.d.drain(now=rig.now)
    rig.d.abandon()
    rig.poll()
    for replica in list(rig.d.hand.replicas):
        rig.died(replica)
    ids = [t.job_id for t in rig.ended]
    assert len(ids) == len(set(ids)) <= taken
    assert rig.d.idle and not rig.d.hand.cancelling and not list(rig.d.hand.waiting())
    assert all(task.runs_out == 0 for task in rig.d.hand.tasks.values())


def failing_in_a_row(rig, times, **fields):
    """One item after the other fails on the only replica; return whether it was stopped for it."""
    for _ in range(times):
        if rig.stops:
            break
        ((tag, _),) = rig.lease()[0].items
        rig.done(tag, after=0.1, error=BAD, **fields)
        rig.ring()
    return bool(rig.stops)


def worked_once():
    rig = Rig()
    ((tag, _),) = rig.lease()[0].items
    rig.done(tag, after=0.1)
    rig.ring()
    return rig


def test_a_replica_that_worked_and_then_only_fails_is_replaced():
    rig = worked_once()
    assert not failing_in_a_row(rig, FAILURES_IN_ROW_MAX - 1)
    assert failing_in_a_row(rig, 1)


@pytest.mark.parametrize("fields", [{"permanent": True}, {"after_s": 1.0}, {"alone": True}])
def test_failures_that_were_meant_or_seen_in_company_replace_nothing(fields):
    assert not failing_in_a_row(worked_once(), 3 * FAILURES_IN_ROW_MAX, **fields)


def test_a_replica_that_never_worked_is_not_replaced_for_failing():
    assert not failing_in_a_row(Rig(), 3 * FAILURES_IN_ROW_MAX)
