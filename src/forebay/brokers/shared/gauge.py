"""Gauge: what tasks and tenants hold, as the newest transaction of this process found it, in memory."""

from collections.abc import Sequence
from typing import Any

from forebay.brokers.shared.states import FINAL_NUMBERS, NUMBERS
from forebay.core.job import Job
from forebay.core.lifecycle import State
from forebay.core.tenant import Held
from forebay.ports.broker import Load

Row = tuple[Any, ...]
_QUEUED, _RUNNING = NUMBERS[State.QUEUED], NUMBERS[State.RUNNING]


class _Counts:
    __slots__ = ("bytes", "draining", "open", "paused", "queued", "running")

    def __init__(self) -> None:
        self.open = self.queued = self.running = self.bytes = 0
        self.paused = self.draining = False


class Gauge:
    """Exact for what this process does; what others do it learns with the next look."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Counts] = {}
        self._held: dict[str, list[int]] = {}
        self._coming: dict[str, list[int]] = {}  # by task: submitted, and not yet in a transaction that ended
        self._coming_of: dict[str, list[int]] = {}  # by tenant

    def saw(self, counts: Sequence[Row], taps: Sequence[Row]) -> None:
        """Take in what a transaction found."""
        self._tasks, self._held = {}, {}
        for task, tenant, state, jobs, size in counts:
            self.moved(task, tenant, state, jobs, size)
        for task, paused, draining in taps:
            self.turned(task, paused, draining)

    def moved(self, task: str, tenant: str, state: int, jobs: int, size: int) -> None:
        """Take in so many more jobs and bytes of a task and a tenant in a state, or less."""
        if state in FINAL_NUMBERS or not (jobs or size):
            return
        own = self._tasks.get(task) or self._tasks.setdefault(task, _Counts())
        own.open += jobs
        own.bytes += size
        own.queued += jobs if state == _QUEUED else 0
        own.running += jobs if state == _RUNNING else 0
        of_tenant = self._held.setdefault(tenant, [0, 0])
        of_tenant[0] += jobs
        of_tenant[1] += size

    def left(self, task: str, queued: int) -> None:
        """Take in that so many jobs of a task are queued: others may have entered some meanwhile."""
        own = self._tasks.get(task) or self._tasks.setdefault(task, _Counts())
        own.open += queued - own.queued
        own.queued = queued

    def turned(self, task: str, paused: bool, draining: bool) -> None:
        """Take in the taps of a task."""
        own = self._tasks.get(task) or self._tasks.setdefault(task, _Counts())
        own.paused, own.draining = paused, draining

    def comes(self, jobs: Sequence[Job], sign: int) -> None:
        """Count jobs that are on their way into the store (1), or are so no more (-1)."""
        for job in jobs:
            for held, name in ((self._coming, job.task), (self._coming_of, job.tenant)):
                count = held.setdefault(name, [0, 0])
                count[0] += sign
                count[1] += sign * job.size
                if not count[0]:
                    del held[name]

    def load(self, task: str) -> Load:
        """Return how much a task holds."""
        own, (jobs, size) = self._tasks.get(task), self._coming.get(task, (0, 0))
        if own is None:
            return Load(jobs, jobs, 0, size)
        return Load(
            max(0, own.open) + jobs,
            max(0, own.queued) + jobs,
            max(0, own.running),
            max(0, own.bytes) + size,  # what others entered, and ended here, is not known yet
            own.paused,
            own.draining,
        )

    def held(self, tenant: str) -> Held:
        """Return what a tenant holds."""
        (jobs, size), (more, more_b) = self._held.get(tenant, (0, 0)), self._coming_of.get(tenant, (0, 0))
        return Held(max(0, jobs) + more, max(0, size) + more_b)

    def waiting(self) -> set[str]:
        """Return the tasks that have queued jobs and are not paused."""
        return {task for task, own in self._tasks.items() if own.queued > 0 and not own.paused}
