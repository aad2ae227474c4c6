"""Relay: which hints of a message broker are acknowledged, given back or asked for, and how many are missing.

The store alone decides what runs. The one aim here is that the number of messages in the broker follows the
number of queued jobs: each job that is queued brings one, each lease takes one away, whichever it is.
"""

from collections.abc import Collection, Container, Sequence
from enum import Enum
from typing import Final, NamedTuple

HELD_MAX: Final = 16  # hints of one task that a process holds while it looks for what they are about
HELD_MAX_S: Final = 2.0  # one that led to no lease is looked into then
HUNGRY_S: Final = 3.0  # after a lease that gave less than was asked for: whoever can work asks each second
DEBTS_MAX: Final = 2_000  # leases of one task whose hint has not come yet
DEBT_MAX_S: Final = 60.0  # then its hint is not waited for any more; should it come it is stale
RECEIVED_MAX: Final = 100  # hints asked for at once
BACK_S: Final = 2.0  # what cannot run yet is kept away for so long
PENDING_MAX: Final = 10_000  # hints that wait to be sent; past it they are dropped, and found to be missing
SENT_MAX: Final = 500  # hints sent at once
MISSING_MAX: Final = 500  # hints sent again after one look
UNANNOUNCED_MAX: Final = 10_000  # jobs remembered of which nobody sent a hint


class Take(Enum):
    """What became of a hint that was received."""

    HELD = "held"  # ring, and look what comes of it
    PAID = "paid"  # its job was leased before it came
    DOUBLE = "double"  # it is held already


class Looked(NamedTuple):
    """What is done with hints whose jobs were looked up."""

    stale: list[object]  # acknowledged
    back: list[object]  # given back for BACK_S


class _Held:
    __slots__ = ("at", "doubted", "number", "token")

    def __init__(self, token: object, number: int, at: float) -> None:
        self.token = token
        self.number = number
        self.at = at
        self.doubted = False


class Line:
    """The hints of one task in one process."""

    def __init__(self, task: str, *, delays: bool) -> None:
        """`delays`: the broker keeps away what is given back; else nothing is asked for meanwhile."""
        self.task = task
        self._delays = delays
        self._held: dict[str, _Held] = {}
        self._debts: dict[str, float] = {}
        self._hungry_at: float | None = None
        self._shut_until = 0.0
        self._surplus = 0
        self._number = 0

    @property
    def held(self) -> int:
        """How many hints are held."""
        return len(self._held)

    @property
    def debts(self) -> int:
        """How many leases wait for a hint to take away."""
        return len(self._debts)

    def holds(self, job_id: str) -> bool:
        """Say whether the hint of a job is held."""
        return job_id in self._held

    def mark(self) -> int:
        """Return what `granted` needs of a lease that is asked for now."""
        return self._number

    def wanted(self, *, now: float) -> int:
        """Return how many hints to ask the broker for now."""
        self._forgive(now)
        if now < self._shut_until:
            return 0
        count = len(self._debts) + self._surplus
        if self._hungry_at is not None and now - self._hungry_at <= HUNGRY_S:
            count += max(0, HELD_MAX - len(self._held))
        return min(count, RECEIVED_MAX)

    def received(self, job_id: str, token: object, *, now: float) -> Take:
        """Take in a hint; what is not held is to be acknowledged."""
        self._surplus = max(0, self._surplus - 1)
        if job_id in self._held:
            return Take.DOUBLE
        if self._debts:
            paid = job_id if job_id in self._debts else next(iter(self._debts))
            del self._debts[paid]
            return Take.PAID
        self._number += 1
        self._held[job_id] = _Held(token, self._number, now)
        return Take.HELD

    def granted(
        self, ids: Sequence[str], *, asked: int, now: float, silent: Container[str] = ()
    ) -> list[object]:
        """Take in what a lease gave; `silent` are jobs of which no hint is out. Returns what to
        acknowledge."""
        self._hungry_at = now if len(ids) < asked else None
        acked: list[object] = []
        owing: list[str] = []
        for job_id in ids:
            one = self._held.pop(job_id, None)
            if one is not None:
                acked.append(one.token)
            elif job_id not in silent:
                owing.append(job_id)
        for job_id in owing:
            other = next((name for name, one in self._held.items() if not one.doubted), None)
            if other is not None:
                acked.append(self._held.pop(other).token)
            elif len(self._debts) < DEBTS_MAX:
                self._debts[job_id] = now
        return acked

    def doubted(self, *, now: float, mark: int | None = None) -> list[str]:
        """Return the jobs whose hints led to no lease: those held at `mark`, when a lease that was asked for
        then gave less than all, and those held for too long. Each is returned once."""
        found: list[str] = []
        for job_id, one in self._held.items():
            late = now - one.at >= HELD_MAX_S or (mark is not None and one.number <= mark)
            if late and not one.doubted:
                one.doubted = True
                found.append(job_id)
        return found

    def looked(self, ids: Sequence[str], queued: Collection[str], *, now: float) -> Looked:
        """Take in which of the doubted jobs are queued still."""
        verdict = Looked([], [])
        for job_id in ids:
            one = self._held.pop(job_id, None)
            if one is not None:
                (verdict.back if job_id in queued else verdict.stale).append(one.token)
        if verdict.back and not self._delays:
            self._shut_until = now + BACK_S
        return verdict

    def unknown(self, ids: Sequence[str], *, now: float) -> None:
        """The store could not be asked: try again later."""
        for job_id in ids:
            if (one := self._held.get(job_id)) is not None:
                one.doubted, one.at = False, now

    def too_many(self, count: int) -> None:
        """There are so many hints too many: ask for that many more, to look into them."""
        self._surplus = min(count, RECEIVED_MAX)

    def _forgive(self, now: float) -> None:
        while self._debts:
            oldest = next(iter(self._debts))
            if now - self._debts[oldest] <= DEBT_MAX_S:
                return
            del self._debts[oldest]


class Gap:
    """Whether a task has fewer hints than queued jobs, or more. One look may be wrong: hints are on their
    way, and what brokers say of their queues is late. What two looks running have in common is true."""

    def __init__(self) -> None:
        self._missing = self._surplus = 0

    def look(self, *, queued: int, hints: int, coming: int = 0) -> tuple[int, int]:
        """Return how many hints to send again, and how many there are too many."""
        missing, surplus = max(0, queued - hints - coming), max(0, hints - queued)
        told = min(missing, self._missing, MISSING_MAX), min(surplus, self._surplus)
        self._missing = 0 if told[0] else missing
        self._surplus = 0 if told[1] else surplus
        return told


class Pending:
    """Jobs whose hints wait to be sent, by task, oldest first."""

    def __init__(self, most: int = PENDING_MAX) -> None:
        self._most = most
        self._tasks: dict[str, dict[str, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def tasks(self) -> list[str]:
        """Return the tasks of which some wait."""
        return list(self._tasks)

    def of(self, task: str) -> int:
        """Return how many of a task wait."""
        return len(self._tasks.get(task, ()))

    def put(self, task: str, job_id: str) -> bool:
        """Take in one; False when there are too many."""
        jobs = self._tasks.setdefault(task, {})
        if job_id in jobs:
            return True
        if self._count >= self._most:
            if not jobs:
                del self._tasks[task]
            return False
        jobs[job_id] = None
        self._count += 1
        return True

    def drop(self, task: str, job_id: str) -> bool:
        """Leave one out: its job runs already. Returns whether it was there."""
        jobs = self._tasks.get(task)
        if jobs is None or job_id not in jobs:
            return False
        del jobs[job_id]
        self._count -= 1
        if not jobs:
            del self._tasks[task]
        return True

    def take(self, most: int = SENT_MAX) -> tuple[str, list[str]]:
        """Return the task that waited longest and what to send of it. Raises StopIteration for none."""
        task = next(iter(self._tasks))
        jobs = self._tasks.pop(task)
        ids = list(jobs)[:most]
        for job_id in ids:
            del jobs[job_id]
        if jobs:
            self._tasks[task] = jobs  # behind the others
        self._count -= len(ids)
        return task, ids


class Unannounced:
    """The newest jobs of which nobody sent a hint: their leases wait for none."""

    def __init__(self, most: int = UNANNOUNCED_MAX) -> None:
        self._most = most
        self._ids: dict[str, None] = {}

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._ids

    def add(self, job_id: str) -> None:
        """Remember one."""
        self._ids[job_id] = None
        if len(self._ids) > self._most:
            del self._ids[next(iter(self._ids))]

    def discard(self, job_id: str) -> None:
        """Forget one."""
        self._ids.pop(job_id, None)
