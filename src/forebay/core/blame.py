"""What an outcome or a death means for a job: who is charged, who goes back untouched."""

from collections.abc import Iterator

from forebay.core import settle
from forebay.core.actions import KillReason, Outcome
from forebay.core.evidence import log_for, witnessed
from forebay.core.job import JobError, Lease, Transition
from forebay.core.lifecycle import Event
from forebay.core.replicas import Item, Replica, Run, Traces
from forebay.core.task import TaskSpec


def by_outcome(item: Item, outcome: Outcome, spec: TaskSpec, *, now: float, jitter: float) -> Transition:
    """Settle an item whose handler answered. After its deadline or a cancel no answer is worth anything."""
    lease = item.ran_as()
    deadline_at = lease.job.deadline_at
    if deadline_at is not None and now >= deadline_at:
        return settle.expire(lease, now=now)
    if item.cancel_by is not None:
        return settle.cancel(lease, now=now)
    if outcome.output is not None:
        return settle.complete(lease, output=outcome.output, now=now)
    assert outcome.error is not None
    error = outcome.error._replace(attempt=lease.attempt)
    if outcome.uncharged:
        return settle.put_off(lease, error=error, after_s=outcome.after_s or 0.0, now=now)
    if outcome.alone:
        return settle.suspect(lease, error=error, policy=spec.settle, now=now)
    return settle.fail(
        lease,
        error=error,
        policy=spec.settle,
        now=now,
        jitter=jitter,
        permanent=outcome.permanent,
        after_s=outcome.after_s,
    )


def by_death(
    item: Item, run: Run, spec: TaskSpec, *, alone: bool, error: JobError, now: float, jitter: float
) -> Transition:
    """Settle an item whose child died while it ran. `alone`: nothing else ran in that child."""
    lease, policy, replica = item.ran_as(), spec.settle, run.replica
    error = error._replace(attempt=lease.attempt)
    match replica.kill:
        case KillReason.CANCEL if item.tag == replica.kill_tag:
            return settle.cancel(lease, now=now)
        case KillReason.DEADLINE if item.tag == replica.kill_tag:
            return settle.expire(lease, now=now)
        case KillReason.CANCEL | KillReason.DEADLINE | KillReason.STOP:
            return settle.release(lease, policy=policy, now=now)
        case KillReason.TIMEOUT if not _overran(run, spec):
            return settle.release(lease, policy=policy, now=now)
        case KillReason.TIMEOUT if run.parallel or len(run.items) == 1:
            late = JobError("timeout", f"ran longer than {spec.timeout_s:g} s", "", lease.attempt)
            return settle.fail(lease, error=late, policy=policy, now=now, jitter=jitter)
        case None if alone:
            return settle.die(lease, error=error, policy=policy, now=now, jitter=jitter)
        case _:
            return settle.suspect(lease, error=error, policy=policy, now=now)


_FAILURES = frozenset({Event.FAILED, Event.EXHAUSTED, Event.SUSPECTED})


def witness(transition: Transition, item: Item, run: Run | None, log: str, tenants: set[str]) -> Transition:
    """Return a failure with its evidence: who ran in the same call, or beside it, and what was printed.

    `tenants`: of others whose words may be in `log`, beside those the replica still holds.
    """
    if run is None or transition.event not in _FAILURES:
        return transition
    if log:
        known = tenants | {lease.job.tenant for lease in with_replica(run.replica)}
        log = log_for(log, item.lease.job, tenants=known, mixed=run.parallel)
    return witnessed(transition, log=log, mates=_mates(run))


def with_replica(replica: Replica) -> Iterator[Lease]:
    """Yield the leases of all runs that a replica has not finished, with what has ended of them."""
    for run in replica.runs:
        for _, lease in run.sent:
            yield lease


def left_by(gone: Replica, traces: Traces) -> tuple[list[tuple[Item, Run]], list[Item]]:
    """Return what a dead child had started, each with its run, and what it had not.

    Where the child left a mark (`tag`) that item ran and nothing else did: what came before it had ended,
    though its results may have died with the child, and all that is left had not begun.
    """
    tag, idle, arrived = traces
    started: list[tuple[Item, Run]] = []
    unstarted: list[Item] = []
    head = gone.head()
    for run in gone.runs:
        unfinished = [item for item in run.items.values() if not item.dropped]
        if idle or (arrived is not None and run.id > arrived):
            unstarted += unfinished
            run.items = {}
        elif tag is not None and not run.parallel:
            started += [(item, run) for item in unfinished if item.tag == tag]
            unstarted += [item for item in unfinished if item.tag != tag]
            run.items = {tag: run.items[tag]} if tag in run.items else {}
        elif run is head or run.parallel:
            started += [(item, run) for item in unfinished]
        else:
            unstarted += unfinished
    return started, unstarted


def _mates(run: Run) -> Iterator[str]:
    if not run.singles:
        yield from (lease.job.id for _, lease in run.sent)
    elif run.parallel:
        for other in run.replica.runs:
            yield from (item.lease.job.id for item in other.items.values())


def _overran(run: Run, spec: TaskSpec) -> bool:
    if not run.parallel and run is not run.replica.head():
        return False  # what was timed is the run before it, whose results died with the child
    since = run.sent_at if run.parallel else run.replica.since
    return run.replica.killed_at >= since + spec.timeout_s
