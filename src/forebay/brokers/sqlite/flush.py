"""Pending and Batch: what waits for a flush, and what one flush writes and answers."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from forebay.brokers.sqlite.shelf import CACHED_JOB_BYTES
from forebay.brokers.sqlite.store import SqlBook
from forebay.brokers.sqlite.task_queue import TaskQueue
from forebay.core.job import Depth, Job, Receipt
from forebay.core.many import TASK_OF, TENANT_OF, size_of
from forebay.core.tenant import Held
from forebay.errors import ForebayError
from forebay.ports.broker import Load

ENQUEUE_JOBS_MAX: Final = 2_000  # submissions in one flush: dispatch must not starve behind them
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024  # of submissions that wait for the disk
WAITING_AGE_MAX_S: Final = 5.0  # past it the disk is too slow to promise anything


@dataclass(slots=True, eq=False)
class Op:
    """One verb that waits. `patient` ones wait out a full disk."""

    call: Callable[[], Any]
    future: "asyncio.Future[Any]"
    size: int = 0
    patient: bool = False
    answer: Any = None


def weigh(jobs: Sequence[Job]) -> dict[str, tuple[int, int]]:
    """Return jobs and bytes of each task among `jobs`."""
    if len(jobs) == 1:
        (only,) = jobs
        return {only.task: (1, len(only.payload) + len(only.metadata))}
    if len(set(map(TASK_OF, jobs))) == 1:
        return {jobs[0].task: (len(jobs), size_of(jobs))}
    weights: dict[str, tuple[int, int]] = {}
    for job in jobs:
        count, size = weights.get(job.task, (0, 0))
        weights[job.task] = (count + 1, size + job.size)
    return weights


def weigh_tenants(jobs: Sequence[Job]) -> dict[str, Held]:
    """Return jobs and bytes of each tenant among `jobs`; nothing when none of them has a name."""
    if set(map(TENANT_OF, jobs)) == _NAMELESS:
        return _NO_TENANTS
    weights: dict[str, Held] = {}
    for job in jobs:
        held = weights.get(job.tenant, Held())
        weights[job.tenant] = Held(held.jobs + 1, held.bytes + job.size)
    return weights


_NONE: Final = (0, 0)
_NAMELESS: Final = {""}
_NO_TENANTS: Final[dict[str, Held]] = {}


@dataclass(slots=True, eq=False)
class Enqueue:
    """One submission that waits."""

    jobs: Sequence[Job]
    now: float
    future: "asyncio.Future[Any]"
    weights: dict[str, tuple[int, int]]  # jobs and bytes of each task
    since: float  # when it came
    tenants: dict[str, Held]  # jobs and bytes of each; empty when all are without a name


@dataclass(slots=True, eq=False)
class Batch:
    """What one flush writes."""

    early: list[Op]
    enqueues: list[Enqueue]
    later: list[Op]
    _receipts: list[Receipt] = field(default_factory=list[Receipt])

    @property
    def jobs(self) -> int:
        """Jobs submitted and settled in it."""
        return sum(len(op.jobs) for op in self.enqueues) + sum(op.size for op in self.early)

    @property
    def is_single(self) -> bool:
        """Whether it is one call."""
        return len(self.early) + len(self.enqueues) + len(self.later) == 1

    def run(self, book: SqlBook) -> None:
        """Call every verb inside the open transaction."""
        for op in self.early:
            op.answer = op.call()
        if len(self.enqueues) == 1:
            self._receipts = book.enqueue(self.enqueues[0].jobs, now=self.enqueues[0].now)
        elif self.enqueues:
            jobs = [job for op in self.enqueues for job in op.jobs]
            self._receipts = book.enqueue(jobs, now=max(op.now for op in self.enqueues))
        for op in self.later:
            op.answer = op.call()

    def answer(self) -> None:
        """Tell everybody what came out."""
        for op in (*self.early, *self.later):
            if not op.future.done():
                op.future.set_result(op.answer)
        at = 0
        for enqueue in self.enqueues:
            if not enqueue.future.done():
                enqueue.future.set_result(self._receipts[at : at + len(enqueue.jobs)])
            at += len(enqueue.jobs)

    def fail(self, error: Exception) -> None:
        """Tell everybody that it went wrong."""
        for op in self.ops():
            if not op.future.done():
                op.future.set_exception(error)

    def refuse(self, error: ForebayError) -> bool:
        """Fail what does not wait out a full disk; returns whether that was anything."""
        refused = [op for op in self.ops() if isinstance(op, Enqueue) or not op.patient]
        for op in refused:
            if not op.future.done():
                op.future.set_exception(error)
        return bool(refused)

    def patient_ops(self) -> list[Op]:
        """Return what waits out a full disk."""
        return [op for op in self.early if op.patient]

    def ops(self) -> "Iterator[Op | Enqueue]":
        """Yield every call of it."""
        yield from self.early
        yield from self.enqueues
        yield from self.later


class Pending:
    """Verbs that wait for the next flush, and how much the submissions among them weigh."""

    def __init__(self) -> None:
        self.early: list[Op] = []
        self.later: list[Op] = []
        self._enqueues: list[Enqueue] = []
        self._alone: list[Batch] = []  # calls of a flush that failed for a reason of one of them
        self._waiting: dict[str, tuple[int, int]] = {}  # jobs and bytes of each task
        self._tenants: dict[str, Held] = {}  # of those with a name
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self.early or self._enqueues or self.later or self._alone)

    def add_enqueue(self, op: Enqueue) -> None:
        """Let a submission wait."""
        self._enqueues.append(op)
        self.bytes += CACHED_JOB_BYTES * len(op.jobs)
        for task, (more, more_b) in op.weights.items():
            self.bytes += more_b
            jobs, size = self._waiting.get(task, (0, 0))
            self._waiting[task] = (jobs + more, size + more_b)
        for tenant, held in op.tenants.items():
            before = self._tenants.get(tenant, Held())
            self._tenants[tenant] = Held(before.jobs + held.jobs, before.bytes + held.bytes)

    def held(self, tenant: str) -> Held:
        """Return how much of a tenant's waits."""
        if tenant:
            return self._tenants.get(tenant, Held())
        named = self._tenants.values()
        waiting = self._waiting.values()
        return Held(
            sum(jobs for jobs, _ in waiting) - sum(held.jobs for held in named),
            sum(size for _, size in waiting) - sum(held.bytes for held in named),
        )

    def overload(self, now: float) -> str | None:
        """Say why no more submissions can wait; None when they can."""
        if self.bytes > WAITING_BYTES_MAX:
            return f"{self.bytes} bytes of submissions wait for the disk, the most is {WAITING_BYTES_MAX}"
        if self._enqueues and now - self._enqueues[0].since > WAITING_AGE_MAX_S:
            return f"submissions have waited for the disk for more than {WAITING_AGE_MAX_S:.0f} s"
        return None

    def with_waiting(self, task: str, depth: Depth) -> Depth:
        """Return a depth with the submissions that wait added."""
        waiting = self._waiting.get(task)
        if waiting is None:
            return depth
        return depth._replace(queued=depth.queued + waiting[0], bytes=depth.bytes + waiting[1])

    def load(self, task: str, queue: TaskQueue | None) -> Load:
        """Return what a task holds with the submissions that wait."""
        jobs, size = self._waiting.get(task, _NONE)
        if queue is None:
            return Load(jobs, jobs, 0, size)
        queued, running = queue.queued + jobs, queue.running
        held = queued + queue.scheduled + queue.retrying + running
        return Load(held, queued, running, queue.bytes + size, queue.paused, queue.draining)

    def take(self, *, patient_only: bool) -> Batch | None:
        """Return what the next flush writes, None when nothing waits."""
        if self._alone and not patient_only:
            return self._alone.pop(0)
        if patient_only:
            batch = Batch([op for op in self.early if op.patient], [], [])
            self.early = [op for op in self.early if not op.patient]
        else:
            batch = Batch(self.early, self._take_enqueues(), self.later)
            self.early, self.later = [], []
        return batch if batch.early or batch.enqueues or batch.later else None

    @property
    def has_enqueues(self) -> bool:
        """Whether submissions wait."""
        return bool(self._enqueues)

    def take_all_enqueues(self) -> list[Enqueue]:
        """Return every submission that waits, which is then forgotten."""
        taken: list[Enqueue] = []
        while self._enqueues:
            taken += self._take_enqueues()
        return taken

    def _take_enqueues(self) -> list[Enqueue]:
        count = jobs = 0
        for op in self._enqueues:
            if jobs >= ENQUEUE_JOBS_MAX:
                break
            count += 1
            jobs += len(op.jobs)
        taken = self._enqueues[:count]
        del self._enqueues[:count]
        for op in taken:
            self._unweigh(op)
        return taken

    def _unweigh(self, op: Enqueue) -> None:
        self.bytes -= CACHED_JOB_BYTES * len(op.jobs)
        for task, (less, less_b) in op.weights.items():
            self.bytes -= less_b
            jobs, size = self._waiting[task]
            if jobs == less:
                del self._waiting[task]
            else:
                self._waiting[task] = (jobs - less, size - less_b)
        for tenant, held in op.tenants.items():
            before = self._tenants[tenant]
            if before.jobs == held.jobs:
                del self._tenants[tenant]
            else:
                self._tenants[tenant] = Held(before.jobs - held.jobs, before.bytes - held.bytes)

    def put_back_singly(self, batch: Batch) -> None:
        """Let each call of a flush that failed wait for a flush of its own."""
        self._alone += [Batch([op], [], []) for op in batch.early]
        self._alone += [Batch([], [op], []) for op in batch.enqueues]
        self._alone += [Batch([], [], [op]) for op in batch.later]

    def take_all(self) -> "list[Op | Enqueue]":
        """Return everything that waits, which is then forgotten."""
        everything: list[Op | Enqueue] = [op for batch in self._alone for op in batch.ops()]
        everything += [*self.early, *self._enqueues, *self.later]
        self.early, self.later, self._enqueues, self._alone = [], [], [], []
        self._waiting.clear()
        self._tenants.clear()
        self.bytes = 0
        return everything
