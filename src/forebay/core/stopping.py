"""Stopping one item: lost, cancelled, past its deadline; and killing the child when nothing else helps."""

from collections.abc import Sequence

from forebay.core import settle
from forebay.core.actions import CancelItem, GiveBack, KillReason, KillReplica, Outcome, StopReplica
from forebay.core.hand import Hand
from forebay.core.job import Lease, Transition
from forebay.core.quarantine import DeadlyInput
from forebay.core.replicas import Item, Replica
from forebay.core.task import TaskSpec

# A replica that has worked and then fails so often without one success is replaced: what it holds may be
# broken (a device after a fatal error), and the next process need not be.
FAILURES_IN_ROW_MAX = 10
JOBS_NAMED_MAX = 10  # in the reason of a kill or a death
GIVE_BACK_S = 0.1  # a child has this long to give back what waits behind a stuck item


def lost(hand: Hand, item: Item) -> None:
    """Somebody else may run it now: whatever our child answers is worth nothing."""
    if item.run is None:
        hand.drop_waiting(item)
        return
    hand.settle(item, None)
    hand.actions.append(CancelItem(item.run.replica.id, item.tag))


def cancel(hand: Hand, item: Item, *, now: float, grace_s: float) -> None:
    """Somebody wants it cancelled: at once when it waits, else ask the handler and give it a grace."""
    if item.run is None:
        hand.drop_waiting(item)
        hand.decide(item, settle.cancel(item.lease, now=now))
        return
    item.cancel_by = now + grace_s
    hand.cancelling[item.tag] = item
    hand.actions.append(CancelItem(item.run.replica.id, item.tag))


def other_versions(hand: Hand, spec: TaskSpec, leases: Sequence[Lease], now: float) -> list[Lease]:
    """Settle the leases of jobs accepted for another version, which this task does not run; return the
    others. A job without a version (from before there were any) is of every version."""
    mine: list[Lease] = []
    decide = settle.await_version if spec.on_version == "wait" else settle.refuse_version
    for lease in leases:
        if lease.job.version in ("", spec.version):
            mine.append(lease)
        else:
            hand.transitions.append(decide(lease, version=spec.version, now=now))
            hand.settled.append(lease)
    return mine


def bar(hand: Hand, condemned: Sequence[tuple[Lease, DeadlyInput]], now: float) -> None:
    """End jobs whose inputs are in quarantine: none of them costs another worker."""
    for lease, deadly in condemned:
        hand.transitions.append(settle.bar(lease, deadly, now=now))
        hand.settled.append(lease)


def force(hand: Hand, item: Item, reason: KillReason, now: float) -> None:
    """End this item now.

    Alone in its child, the child is killed and the job is final when it is dead. Single items that
    wait behind it are asked back first. A batch with mates, or other async calls, go on, and this
    item's output is dropped.
    """
    run = item.run
    if run is None:
        hand.drop_waiting(item)
        hand.decide(item, forced(item, reason, now))
        return
    replica = run.replica
    shared = run.parallel or not run.singles
    if replica.wanted() == 1 or (item.force is not None and not shared):
        hand.cancelling.pop(item.tag, None)
        kill(hand, replica, reason, item.tag, now)
    elif shared or replica.head() is not run or item is not next(iter(run.items.values())):
        hand.settle(item, forced(item, reason, now))
        hand.actions.append(CancelItem(replica.id, item.tag))
    else:
        item.force = reason
        item.cancel_by = now + GIVE_BACK_S
        hand.cancelling[item.tag] = item
        hand.actions.append(GiveBack(replica.id))


def forced(item: Item, reason: KillReason, now: float) -> Transition:
    """Return the end of an item that is ended by force."""
    ended = settle.cancel if reason is KillReason.CANCEL else settle.expire
    return ended(item.ran_as(), now=now)


def unstarted(hand: Hand, items: Sequence[Item], now: float) -> None:
    """Take back what a replica never started: in line again, or ended when somebody wanted its end."""
    again: list[Item] = []
    for item in items:
        deadline_at = item.lease.job.deadline_at
        if item.cancel_by is not None:
            hand.settle(item, forced(item, item.force or KillReason.CANCEL, now))
        elif deadline_at is not None and now >= deadline_at:  # nobody looks at it a second time
            hand.settle(item, forced(item, KillReason.DEADLINE, now))
        else:
            again.append(item)
    hand.wait_again(again)


def retire_empty(hand: Hand, *, draining: bool = False) -> None:
    """Retire the replicas that are worn, and stop those that are retired and have nothing left. In a drain
    every one goes as soon as it is idle: what it holds, a device before all, is free for others."""
    leaving = draining and not hand.basin.open
    limits = [task.spec.recycle_after for task in hand.tasks.values() if task.spec.recycle_after]
    for replica in hand.replicas.values():
        broken = (
            replica.failures >= FAILURES_IN_ROW_MAX and replica.calls_max is None
        )  # else a server's fault
        if broken or (limits and replica.items_done >= min(limits)):
            replica.retiring = True
        if leaving and replica.calls_max is None:  # a server of somebody else's holds nothing of ours
            replica.retiring = True
        if replica.retiring and not replica.runs and replica.kill is None:
            replica.kill = KillReason.STOP
            hand.actions.append(StopReplica(replica.id))


def kill(hand: Hand, replica: Replica, reason: KillReason, tag: int | None, now: float) -> None:
    """Have the child killed, once; what it had is settled when it is dead."""
    if replica.kill is not None:
        return
    replica.kill = reason
    replica.kill_tag = tag
    replica.killed_at = now
    task, job_ids = running(replica, tag)
    hand.actions.append(KillReplica(replica.id, reason, replica.name, task, job_ids))


def running(replica: Replica, tag: int | None = None) -> tuple[str, tuple[str, ...]]:
    """Return the task and the jobs a replica works on: only the tagged one where it is known, else those of
    the run at its head, or of all that run beside each other; JOBS_NAMED_MAX at most."""
    head = replica.head()
    runs = [run for run in replica.runs if run is head or run.parallel]
    tagged = [(run, run.items[tag]) for run in runs if tag in run.items] if tag is not None else []
    found = tagged or [(run, item) for run in runs for item in run.items.values()]
    task = found[0][0].task if found else ""
    return task, tuple(item.lease.job.id for _, item in found[:JOBS_NAMED_MAX])


def timeout_at(hand: Hand, replica: Replica) -> float | None:
    """Return when the first of what the replica runs will have run too long, None when it runs nothing."""
    if not replica.runs or replica.kill is not None:
        return None
    times = [run.sent_at + hand.tasks[run.task].spec.timeout_s for run in replica.runs if run.parallel]
    head = replica.head()
    if head is not None:
        times.append(replica.since + hand.tasks[head.task].spec.timeout_s)
    return min(times)


def watch(hand: Hand, now: float) -> None:
    """Do what time alone decides about items and replicas: deadlines, ends of grace, timeouts."""
    for item in hand.due_deadlines(now):
        force(hand, item, KillReason.DEADLINE, now)
    for item in [one for one in hand.cancelling.values() if (one.cancel_by or now) <= now]:
        force(hand, item, item.force or KillReason.CANCEL, now)
    for replica in hand.replicas.values():
        limit_at = timeout_at(hand, replica)
        if limit_at is not None and now >= limit_at:
            kill(hand, replica, KillReason.TIMEOUT, None, now)


def release_waiting(hand: Hand, now: float) -> None:
    """Hand back the jobs that are with no replica."""
    release(hand, list(hand.waiting()), now)


def release(hand: Hand, items: Sequence[Item], now: float) -> None:
    """Hand back these, which are with no replica. Requests stay: nobody else could answer them."""
    for item in [one for one in items if not one.lease.request]:
        policy = hand.tasks[item.lease.job.task].spec.settle
        hand.drop_waiting(item)
        hand.decide(item, settle.release(item.lease, policy=policy, now=now))


def late(hand: Hand, tag: int, now: float) -> None:
    """An answer for an item that was settled before: only the run must still be booked."""
    for replica in hand.replicas.values():
        for run in replica.runs:
            if tag in run.items:
                if run.singles and run is replica.head():
                    replica.restart(now)
                hand.finished(run.items[tag], run, now)
                return


def tenants_of(hand: Hand, outcomes: Sequence[Outcome]) -> set[str]:
    """Return whose jobs have just ended; an unknown one may have been anybody's."""
    items = [hand.items.get(outcome.tag) for outcome in outcomes]
    return {"?" if item is None else item.lease.job.tenant for item in items}
