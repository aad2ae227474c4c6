"""ReadyIndex: which jobs wait, in memory: the order of leases without a SELECT.

Jobs that arrive in order (nearly all) stand in a line of compact chunks, 24 bytes each. The others
(promoted, handed back, out of order, with an ordering key) stand in heaps. SQL is the truth: after a crash
all of this is rebuilt by one scan, after a failed transaction the Journal puts it back.
"""

import math

from forebay.brokers.sqlite.heap import LazyHeap
from forebay.brokers.sqlite.holdings import Holdings
from forebay.brokers.sqlite.journal import Journal
from forebay.brokers.sqlite.lane_ends import LaneEnds
from forebay.brokers.sqlite.task_queue import TaskQueue
from forebay.core.chains import Chains
from forebay.core.fairness import Shares
from forebay.core.job import Job
from forebay.core.reserve import Reserve


class ReadyIndex:
    """All tasks, and the two orders that cross them: what becomes ready when, and what ends when."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.shares = Shares()
        self.reserves: dict[str, Reserve] = {}  # by task
        self.chains: Chains[int] = Chains(self.journal.undo_by)
        self.ends = LaneEnds(self.journal)
        self.by_name: dict[str, TaskQueue] = {}
        self.by_number: dict[int, TaskQueue] = {}
        self.holdings = Holdings(self.journal)
        self.later = LazyHeap()  # scheduled and retrying jobs by ready_at
        self.ending = LazyHeap()  # ends of jobs outside the lines, and of those inside whose end has passed

    def add_task(self, number: int, name: str) -> TaskQueue:
        """Add a task that has a row."""
        queue = TaskQueue(number, name, self)
        self.by_name[name] = self.by_number[number] = queue
        return queue

    def drop_task(self, queue: TaskQueue) -> None:
        """Take `add_task` back."""
        self.by_name.pop(queue.name, None)
        self.by_number.pop(queue.number, None)

    @property
    def minds_endings(self) -> bool:
        """Whether somebody has to hear that a job runs no more: a chain, a bound or an account."""
        fair = any(queue.fair.on for queue in self.by_number.values())
        reserved = any(reserve.others_max is not None for reserve in self.reserves.values())
        return fair or reserved or self.shares.bounded or bool(self.chains)

    def enter_chain(self, queue: TaskQueue, seq: int, tenant: str, ordering_key: str | None) -> None:
        """Let an open job count among those of its ordering key; before it is placed."""
        if ordering_key is not None:
            displaced = self.chains.enter((queue.name, tenant, ordering_key), seq)
            if displaced is not None:
                queue.step_aside(displaced)

    def leave_chain(self, queue: TaskQueue, seq: int, job: Job) -> bool:
        """Let the next of an ordering key have its turn: this one has ended. Whether one is in line now."""
        if job.ordering_key is None:
            return False
        following = self.chains.leave((queue.name, job.tenant, job.ordering_key), seq)
        return following is not None and queue.let_go(following)

    def rest_chain(self, queue: TaskQueue, seq: int, job: Job) -> bool:
        """Take note that a job runs no more and is not final. Whether another one is in line instead."""
        if job.ordering_key is None:
            return False
        following = self.chains.rest((queue.name, job.tenant, job.ordering_key), seq)
        return following is not None and queue.let_go(following)

    def wait_later(self, seq: int, ready_at: float, end: float) -> None:
        """Let a job wait for its time."""
        self.later.push(ready_at, seq)
        self.journal.undo_by(self.later.discard, seq)
        self.watch_end(seq, end)

    def watch_end(self, seq: int, end: float) -> None:
        """Remember when a job outside the lines ends."""
        if end != math.inf and seq not in self.ending.keys:
            self.ending.push(end, seq)
            self.journal.undo_by(self.ending.discard, seq)

    def leave_later(self, seq: int) -> None:
        """Stop waiting for a job's time."""
        ready_at = self.later.discard(seq)
        if ready_at is not None:
            self.journal.undo_by(self.later.push, ready_at, seq)

    def unwatch_end(self, seq: int) -> None:
        """Forget when a job ends: it does not wait any more."""
        end = self.ending.discard(seq)
        if end is not None:
            self.journal.undo_by(self.ending.push, end, seq)

    def is_due(self, now: float) -> bool:
        """Say whether a job waits whose time or whose end has come."""
        for top in (self.later.top(), self.ending.top()):
            if top is not None and top[0] <= now:
                return True
        return self.ends.soonest() <= now

    def ends_due(self, now: float, limit: int) -> list[int]:
        """Return up to `limit` waiting jobs whose end has passed, earliest end first."""
        fresh = limit
        while (soonest := self.ends.soonest()) <= now:
            if fresh >= limit:
                due = self.ending.due(math.nextafter(soonest, -math.inf), limit)
                if len(due) >= limit:
                    return due  # what the lanes hold comes later
                fresh = 0
            fresh += self.ends.pull(now, self.ending)
        return self.ending.due(now, limit)

    def floor(self, default: int) -> int:
        """Return a sequence that no queued job lies below: where a recovery scan may begin."""
        lanes = [lane for queue in self.by_number.values() for lane in queue.lanes.values()]
        lowest = [seq for lane in lanes if (seq := lane.lowest_seq()) is not None]
        lowest += [min(queue.blocked.keys) for queue in self.by_number.values() if len(queue.blocked)]
        return min(lowest, default=default)
