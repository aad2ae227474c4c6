"""Amends: another priority, task or order for jobs that wait."""

from typing import Final

from forebay.brokers.sqlite.rows import Found, end_of
from forebay.brokers.sqlite.shelf import Shelf
from forebay.brokers.sqlite.task_queue import AnyLane, LaneKey, Spot, TaskQueue, spot_of
from forebay.core.job import Amendment, AmendVerdict, Job, amended
from forebay.core.lifecycle import WAITING, State
from forebay.core.turns import Order

_AMEND: Final = "UPDATE jobs SET priority = ?, task = ?, version = ?, fingerprint = ? WHERE seq = ?"
_STANDS: Final = (
    "SELECT coalesce(r.ready_at, j.run_at), j.deadline_at,"
    " min(coalesce(j.expires_at, 9e999), coalesce(j.deadline_at, 9e999))"
    " FROM jobs j LEFT JOIN runs r ON r.seq = j.seq WHERE j.seq = ?"
)


class Amends:
    """The verbs that change the order. Each runs inside an open transaction of its shelf."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def amend(self, job_id: str, change: Amendment, now: float) -> AmendVerdict:
        """Give a waiting job another priority, or move it to another task."""
        shelf = self._shelf
        if job_id in shelf.running:
            return AmendVerdict.RUNNING
        found = shelf.find_visible(job_id, now)
        if found is None:
            return AmendVerdict.UNKNOWN
        if found.record.standing.state not in WAITING:
            return AmendVerdict.FINAL
        job = amended(found.record.job, change)
        before, queue = shelf.index.by_number[found.task], shelf.queue(job.task)
        self._leave(found, before)
        values = (job.priority, queue.number, job.version, job.fingerprint, found.seq)
        shelf.connection.execute(_AMEND, values)
        self._enter(found, job, queue)
        return AmendVerdict.AMENDED

    def _leave(self, found: Found, queue: TaskQueue) -> None:
        shelf, job, standing = self._shelf, found.record.job, found.record.standing
        shelf.touch(queue)
        if standing.state is State.QUEUED:
            queue.remove(found.seq, job)
        _count(queue, standing.state, job, -1)
        shelf.cache.pop(found.seq)
        if shelf.index.leave_chain(queue, found.seq, job):
            shelf.rung.add(queue.name)

    def _enter(self, found: Found, job: Job, queue: TaskQueue) -> None:
        shelf, standing = self._shelf, found.record.standing
        shelf.touch(queue)
        _count(queue, standing.state, job, 1)
        shelf.spans.note(queue.number, job.tenant, (found.seq,))
        shelf.index.enter_chain(queue, found.seq, job.tenant, job.ordering_key)
        if standing.state is State.QUEUED:
            queue.place(spot_of(job, found.seq, standing.ready_at))
            shelf.index.watch_end(found.seq, end_of(job))
            shelf.rung.add(queue.name)
        shelf.tell(job.id, job.task, standing.state)

    def set_order(self, task: str, order: Order) -> None:
        """Let the jobs of a task stand in another order."""
        shelf = self._shelf
        queue = shelf.queue(task)
        if queue.order is order:
            return
        lanes: dict[LaneKey, AnyLane] = dict(queue.lanes)
        shelf.touch(queue)
        for key in lanes:
            queue.drop_lane(key)
        queue.order = order
        for (priority, tenant), lane in lanes.items():
            for seq in lane.seqs():
                row = shelf.row(_STANDS, seq)
                assert row is not None
                ready_at, deadline_at, end = row
                queue.stand(Spot(seq, tenant, priority, ready_at, deadline_at, None))
                shelf.index.watch_end(seq, end)


def _count(queue: TaskQueue, state: State, job: Job, change: int) -> None:
    queue.jobs += change
    queue.bytes += change * job.size
    if state is State.QUEUED:
        queue.queued += change
    elif state is State.RETRYING:
        queue.retrying += change
    else:
        queue.scheduled += change
