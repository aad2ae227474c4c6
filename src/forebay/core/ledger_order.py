"""amend, set_order, set_shares, position: what the Ledger's verbs about the order do to its shelf."""

from collections.abc import Mapping

from forebay.core.fairness import Share
from forebay.core.job import Amendment, AmendVerdict, amended
from forebay.core.ledger_entry import Entry, chain_of
from forebay.core.ledger_shelf import Shelf
from forebay.core.lifecycle import FINAL, WAITING, State
from forebay.core.retention import Retention
from forebay.core.turns import Order


def amend(shelf: Shelf, entry: Entry, change: Amendment) -> AmendVerdict:
    """Give a waiting job another priority or task."""
    if entry.state not in WAITING:
        return AmendVerdict.RUNNING if entry.state is State.RUNNING else AmendVerdict.FINAL
    shelf.take(entry)
    following = None if entry.chain is None else shelf.chains.leave(entry.chain, entry.job.id)
    before, job = entry.queue, amended(entry.job, change)
    shelf.twins.drop(entry.job)
    before.bytes -= entry.size
    entry.job, entry.queue, entry.chain = job, shelf.queue(job.task), chain_of(job)
    entry.queue.bytes += entry.size
    shelf.twins.add(job)
    shelf.enter(entry)
    shelf.let_go(following)
    shelf.drop_queue_if_empty(before)
    if entry.state is State.QUEUED:
        shelf.freed.add(job.task)
    return AmendVerdict.AMENDED


def position(shelf: Shelf, job_id: str) -> int | None:
    """Return the place in line of a queued job."""
    entry = shelf.jobs.get(job_id)
    if entry is None or entry.state is not State.QUEUED:
        return None
    ahead = entry.queue.ahead_of(entry.job, entry.queue.key(entry.job, entry.ready_at))
    if entry.line is None:
        assert entry.chain is not None
        ahead = max(ahead, shelf.chains.rank(entry.chain, entry.job.id))
    return ahead + 1


def waits_for(shelf: Shelf, job_id: str) -> str | None:
    """Return the head of the chain that a waiting job is behind."""
    entry = shelf.jobs.get(job_id)
    if entry is None or entry.chain is None or entry.state not in WAITING:
        return None
    head = shelf.chains.head(entry.chain)
    return head if head != job_id else None


def set_retention(shelf: Shelf, by_task: Mapping[str, Retention]) -> None:
    """Let ended jobs go earlier or later than they would have."""
    shelf.keeping.set(by_task)
    shelf.finals.live = 0
    for entry in shelf.jobs.values():
        if entry.state in FINAL:
            entry.gone_at = shelf.keeping.gone_at(entry.job.task, entry.state, entry.finished_at)
            shelf.finals.add((entry.gone_at, entry.job.id))


def set_order(shelf: Shelf, task: str, order: Order) -> None:
    """Let the jobs of a task stand in another order."""
    shelf.orders[task] = order
    queue = shelf.queues.get(task)
    if queue is None or queue.order is order:
        return
    queue.order = order
    for entry in [e for e in shelf.jobs.values() if e.queue is queue and e.line is not None]:
        shelf.step_out(entry)
        shelf.line_up(entry)


def set_shares(shelf: Shelf, shares: Mapping[str, Share]) -> None:
    """Give tenants their shares."""
    running = [entry.job.tenant for entry in shelf.jobs.values() if entry.state is State.RUNNING]
    shelf.shares.set(shares, running)
    shelf.freed.update(name for name, queue in shelf.queues.items() if queue.counts[State.QUEUED])


def set_reserve(shelf: Shelf, task: str, others_max: int | None) -> None:
    """Keep room for urgent jobs of a task."""
    mine = [entry for entry in shelf.jobs.values() if entry.job.task == task and entry.state is State.RUNNING]
    shelf.reserves[task].set(others_max, [entry.job.priority for entry in mine])
    if task in shelf.queues:
        shelf.freed.add(task)


def take_freed(shelf: Shelf) -> set[str]:
    """Return the tasks of which a job may be granted that could not before, and forget them."""
    freed = shelf.freed
    shelf.freed = set()
    return freed


def forget_service(shelf: Shelf) -> None:
    """Let all tenants start equal, as after a restart."""
    shelf.fairs.clear()
    for queue in shelf.queues.values():
        queue.fair = shelf.fairs[queue.name]
