"""Entry, EntryLine, TaskQueue: one job and one task's queue as the Ledger holds them."""

import math
from collections.abc import Callable, Iterable

from forebay.core.chains import ChainKey
from forebay.core.fairness import FairShare, ahead_among
from forebay.core.job import (
    AGEING_S,
    Attempt,
    Depth,
    Job,
    JobError,
    JobRecord,
    Lease,
    Line,
    Page,
    Query,
    Standing,
)
from forebay.core.ledger_index import Moment, MomentHeap, SortedKeys
from forebay.core.lifecycle import State
from forebay.core.metadata import holds_all
from forebay.core.reserve import Reserve
from forebay.core.turns import TENANTS_RANKED_MAX, Order, Place, order_at


class Entry:
    """One job and everything about it that changes: a Standing that may be written to."""

    __slots__ = (
        "attempt", "attempts", "cancel_at", "cancel_requested", "chain", "checkpoint", "deaths", "degraded",
        "edited", "error", "fence", "finished_at", "gone_at", "job", "keys", "lease_until", "line", "order",
        "output", "progress", "queue", "ready_at", "redriven_as", "releases", "size", "stale", "started_at",
        "state", "suspect", "waits_until", "worker",
    )  # fmt: skip

    def __init__(self, job: Job, queue: "TaskQueue", state: State) -> None:
        self.job = job
        self.queue = queue
        self.keys: list[tuple[str, str]] = []  # idempotency keys that mean this job
        self.size = len(job.payload) + len(job.metadata)
        self.waits_until = job.waits_until
        self.redriven_as: str | None = None
        self.edited: bytes | None = None
        self.stale = False  # queued, but may not be granted any more: the sweep will end it
        self.order: Moment = (0.0, job.id)
        self.line: EntryLine | None = None  # None when it is not queued, or waits for its ordering key
        self.chain = chain_of(job)
        self.state = state
        self.attempt = self.fence = self.deaths = self.releases = 0
        self.suspect = self.cancel_requested = False
        self.ready_at = job.run_at
        self.lease_until: float | None = None
        self.worker = ""
        self.started_at: float | None = None
        self.finished_at: float | None = None
        self.gone_at = math.inf  # past retention from then on
        self.output: bytes | None = None
        self.error: JobError | None = None
        self.progress: bytes | None = None
        self.attempts: tuple[Attempt, ...] = ()
        self.checkpoint: bytes | None = None
        self.degraded = 0
        self.cancel_at: float | None = None

    def record(self) -> JobRecord:
        """Return the job as readers see it."""
        standing = Standing(
            self.state,
            self.attempt,
            self.fence,
            self.deaths,
            self.releases,
            self.suspect,
            self.cancel_requested,
            self.ready_at,
            self.lease_until,
            self.worker,
            self.started_at,
            self.finished_at,
            self.output,
            self.error,
            self.progress,
            self.attempts,
            self.checkpoint,
            self.degraded,
            self.cancel_at,
        )
        return JobRecord(self.job, standing, self.redriven_as, self.edited)

    def lease(self) -> Lease:
        """Return the current lease of a running job."""
        assert self.lease_until is not None
        assert self.started_at is not None
        return Lease(
            self.job,
            self.fence,
            self.attempt,
            self.lease_until,
            self.worker,
            self.started_at,
            self.ready_at,
            self.deaths,
            self.releases,
            self.suspect,
            self.attempts,
            self.cancel_requested,
            self.checkpoint,
        )


class EntryLine:
    """The queued jobs of one priority and one tenant, most urgent first."""

    __slots__ = ("_jobs", "order", "stale")

    def __init__(self, jobs: dict[str, Entry]) -> None:
        self._jobs = jobs
        self.order: SortedKeys[Moment] = SortedKeys()
        self.stale: SortedKeys[Moment] = SortedKeys()  # those past their time, found while leasing

    def __len__(self) -> int:
        return len(self.order) + len(self.stale)

    def oldest_at(self, by_arrival: bool) -> float:
        """Return the ready time of the job that has been ready longest; of a line that is not empty. Looks at
        all unless they stand by arrival."""
        keys = [key for one in (self.order, self.stale) for key in ((one.first(),) if by_arrival else one)]
        return min(self._jobs[key[1]].ready_at for key in keys if key is not None)

    def head(self, now: float) -> Moment | None:
        """Return the key of the first that may be granted. Those past their time are put aside, so that a
        heap of them is walked once and not at every lease.
        """
        while (key := self.order.first()) is not None:
            entry = self._jobs[key[1]]
            if entry.waits_until is None or entry.waits_until > now:
                return key
            self.order.remove(key)
            self.stale.add(key)
            entry.stale = True
        return None

    def ahead_of(self, key: Moment) -> int:
        """Return how many jobs here come before this key."""
        return self.order.rank(key) + self.stale.rank(key)


class TaskQueue:
    """The jobs of one task that are queued, and the counts of all its jobs."""

    __slots__ = ("ages", "bytes", "counts", "draining", "fair", "lines", "name", "order", "paused", "reserve")

    def __init__(
        self,
        name: str,
        order: Order,
        fair: FairShare,
        reserve: Reserve,
        is_queued_since: Callable[[Moment], bool],
    ) -> None:
        self.name = name
        self.paused = False
        self.draining = False
        self.bytes = 0  # of open jobs
        self.counts = dict.fromkeys(State, 0)
        self.order = order
        self.fair = fair
        self.reserve = reserve
        # Queued jobs that need not wait for an earlier one of their ordering key, by priority and tenant.
        self.lines: dict[tuple[int, str], EntryLine] = {}
        self.ages = MomentHeap(is_queued_since)  # queued jobs by ready_at

    def places(self) -> list[Place[EntryLine]]:
        """Return every line."""
        return [Place(priority, tenant, line) for (priority, tenant), line in self.lines.items()]

    def key(self, job: Job, ready_at: float) -> Moment:
        """Return a job's place in the order."""
        return order_at(self.order, ready_at, job.deadline_at) + job.priority * AGEING_S, job.id

    def ahead_of(self, job: Job, key: Moment) -> int:
        """Return how many jobs in the lines come before this one. Beside other tenants an estimate."""
        own = self.lines.get((job.priority, job.tenant))
        rank = 0 if own is None else own.ahead_of(key)
        weight = self.fair.shares.weight
        if len(self.lines) > TENANTS_RANKED_MAX:
            others = self.counts[State.QUEUED] - (0 if own is None else len(own))
            return rank + min(others, rank * (len(self.lines) - 1))
        rivals = [
            (len(line), weight(tenant))
            for (priority, tenant), line in self.lines.items()
            if priority == job.priority and tenant != job.tenant
        ]
        ahead = sum(line.ahead_of(key) for (at, _), line in self.lines.items() if at != job.priority)
        return rank + ahead + ahead_among(rank, weight(job.tenant), rivals)

    def depth(self) -> Depth:
        """Return how full it is."""
        oldest, counts = self.ages.first(), self.counts
        return Depth(
            counts[State.QUEUED],
            counts[State.SCHEDULED],
            counts[State.RETRYING],
            counts[State.RUNNING],
            self.bytes,
            None if oldest is None else oldest[0],
            self.paused,
            counts[State.DEAD],
            self.draining,
            self._lines(),
        )

    def _lines(self) -> tuple[Line, ...]:
        by_priority: dict[int, list[EntryLine]] = {}
        for (priority, _), line in self.lines.items():
            if len(line):
                by_priority.setdefault(priority, []).append(line)
        by_arrival = self.order is Order.ARRIVAL
        return tuple(
            Line(priority, sum(map(len, lines)), min(line.oldest_at(by_arrival) for line in lines))
            for priority, lines in sorted(by_priority.items())
        )


def chain_of(job: Job) -> ChainKey | None:
    """Return the chain a job belongs to, None without an ordering key."""
    return None if job.ordering_key is None else (job.task, job.tenant, job.ordering_key)


def matches(entry: Entry, query: Query) -> bool:
    """Say whether a listing's filters let the job through."""
    job = entry.job
    if query.task is not None and job.task != query.task:
        return False
    if query.states is not None and entry.state not in query.states:
        return False
    if query.tenant is not None and job.tenant != query.tenant:
        return False
    return holds_all(job.metadata, query.metadata)


def page_of(query: Query, walk: Iterable[tuple[str, Entry | None]]) -> Page:
    """Return one page of a walk over ids, newest first; None stands for one that is not to be seen."""
    found: list[JobRecord] = []
    last = None
    for looked, (job_id, entry) in enumerate(walk):
        if len(found) >= query.limit or looked >= query.window_max:
            return Page(tuple(found), last)
        last = job_id
        if entry is not None and matches(entry, query):
            found.append(entry.record())
    return Page(tuple(found), None)
