"""Basin: the requests of one lane: what waits, what runs, what has ended; the books, no decisions."""

import heapq
from collections.abc import Iterable, Mapping
from math import exp
from typing import NamedTuple

from forebay.core.job import PRIORITY_NORMAL, Job, JobError, Lease
from forebay.core.knocks import Knocks
from forebay.core.requests import End, Ended, Request, RequestPolicy, Reservoir
from forebay.core.share import Share
from forebay.core.smooth import Smooth
from forebay.core.tenant import Held

LOOK_STANDS_S = 0.002  # a request whose body comes with its head is not judged twice
RATE_S = 0.5  # the time a rate of arrivals stands for
LOAD_S = 10.0  # the time in which what requests kept busy is forgotten, mostly
LOAD_LEAST = 0.01
NOTHING = Held()


class Asked(NamedTuple):
    """What is known of a request before its body is read."""

    task: str
    tenant: str
    priority: int
    size_b: int
    created_at: float
    deadline_at: float


class Looked(NamedTuple):
    """The last look at a request that would be let in, with what would come of it."""

    asked: Asked
    at: float
    victim: Request | None
    probe: bool

    def stands_for(self, asked: Asked, *, now: float) -> bool:
        """Say whether this request needs no other look: nobody else came or was looked at since, and if one
        was to make room, it still waits."""
        if asked != self.asked or not 0.0 <= now - self.at <= LOOK_STANDS_S:
            return False
        return self.victim is None or (self.victim.end is None and self.victim.tag is None)


class Basin:
    """Every open request is here: with a replica, or waiting in the reservoir of its task."""

    def __init__(self, tasks: Iterable[str], policies: Mapping[str, RequestPolicy] | None = None) -> None:
        known = policies or {}
        self.reservoirs = {name: Reservoir(known.get(name, RequestPolicy())) for name in tasks}
        shares = [one.policy.jobs_share for one in self.reservoirs.values()]
        self.share = Share(max(shares, default=0.0))
        self.open: dict[str, Request] = {}  # by id
        self.waiting = 0
        self.ended: list[Ended] = []  # since they were last taken
        self.lag_s = 0.0  # how late this process lately was for what was due
        self.rates: dict[
            str, tuple[float, float]
        ] = {}  # requests that come: (when looked at, a second), by task
        self.urgent: dict[str, tuple[float, float]] = {}  # of them, those above normal priority
        self.refused_at: dict[str, float] = {}  # when one was last refused for its deadline, by task
        self.booked: dict[str, float] = {}  # until when refused callers were told to come back, by task
        self.looked: Looked | None = None
        self.dry_at: float | None = None  # since when requests find no replica
        self.smooth = Smooth()
        self.knocks = Knocks()  # of the door of this process, where one counts them
        self._due: list[tuple[float, int, Request]] = []  # heap
        self._seq = 0
        self._held: dict[str, list[int]] = {}  # open requests and their bytes, by tenant
        self._load = (0.0, 0.0)  # when looked at, and the replicas that requests kept busy of late

    def held_by(self, tenant: str) -> Held:
        """Return what a tenant holds: its open requests and their bytes."""
        held = self._held.get(tenant)
        return NOTHING if held is None else Held(held[0], held[1])

    def ran(self, took_s: float, *, now: float) -> None:
        """Count the time that a run of requests kept a replica busy."""
        self._load = (now, self._busy(now) + took_s / LOAD_S)

    def jobs_share(self, replicas: int, *, now: float) -> float:
        """Return the share of the time of so many replicas that requests of late leave to jobs."""
        load = self._busy(now) / max(1, replicas)
        if self.smooth.live(now):
            return max(LOAD_LEAST, 1.0 - self.smooth.kept(replicas, now) / max(1, replicas))
        return 1.0 if load < LOAD_LEAST else max(self.share.of_jobs, 1.0 - load, LOAD_LEAST)

    def _busy(self, now: float) -> float:
        at, busy = self._load
        return busy * exp(-max(0.0, now - at) / LOAD_S)

    def came(self, task: str, *, now: float, priority: int = PRIORITY_NORMAL) -> None:
        """Count a request that came, whatever becomes of it."""
        _count(self.rates, task, now)
        if priority < PRIORITY_NORMAL:
            _count(self.urgent, task, now)

    def rate_per_s(self, task: str) -> float:
        """Return how many requests of a task came a second lately."""
        return self.rates.get(task, (0.0, 0.0))[1]

    def lately(self, task: str, *, urgent: bool, now: float) -> float:
        """Return how many requests a second came until now: those above normal priority, or all others."""
        above = _faded(self.urgent, task, now)
        return above if urgent else max(0.0, _faded(self.rates, task, now) - above)

    def new(self, job: Job) -> Request:
        """Book a request that was let in; it waits."""
        self._seq += 1
        request = Request(job, self._seq)
        self.open[job.id] = request
        held = self._held.setdefault(job.tenant, [0, 0])
        held[0] += 1
        held[1] += job.size
        heapq.heappush(self._due, (request.deadline_at, request.seq, request))
        self.wait(request)
        return request

    def wait(self, request: Request) -> None:
        """Let it wait, in its place in line."""
        request.tag = None
        self.reservoirs[request.job.task].put(request)
        self.waiting += 1

    def start(self, request: Request, *, now: float) -> None:
        """Take it out of its reservoir: it goes to a replica."""
        if self.reservoirs[request.job.task].take(request):
            self.waiting -= 1
        request.started_at = now
        request.attempt += 1

    def put_back(self, lease: Lease) -> None:
        """A replica never started it: it waits again, as if nothing had been."""
        request = self.open.get(lease.job.id)
        if request is not None:
            request.attempt -= 1
            self.wait(request)

    def end(
        self,
        request: Request,
        end: End,
        *,
        output: bytes | None = None,
        error: JobError | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """Close it, once; whoever waits is told of the first end."""
        if request.end is not None:
            return
        request.end = end
        if self.reservoirs[request.job.task].take(request):
            self.waiting -= 1
        if self.open.pop(request.job.id, None) is not None:
            self._let_go(request.job)
        self.ended.append(Ended(request, end, output, error, retry_after_s, request.tag is not None))

    def _let_go(self, job: Job) -> None:
        held = self._held[job.tenant]
        held[0] -= 1
        held[1] -= job.size
        if not held[0]:
            del self._held[job.tenant]

    def due(self, now: float) -> list[Request]:
        """Return the open requests whose deadline has come; forgets those that ended before it."""
        due: list[Request] = []
        while self._due and self._due[0][0] <= now:
            request = heapq.heappop(self._due)[2]
            if request.end is None:
                due.append(request)
        if len(self._due) > 2 * len(self.open) + 64:  # mostly of requests that ended long before
            self._due = [entry for entry in self._due if entry[2].end is None]
            heapq.heapify(self._due)
        return due

    def due_at(self) -> float | None:
        """Return when to look for what is due next, None when nothing is open."""
        return self._due[0][0] if self.open and self._due else None

    def take_ended(self) -> list[Ended]:
        """Return and forget what has ended since the last call."""
        ended, self.ended = self.ended, []
        return ended


def _count(rates: dict[str, tuple[float, float]], task: str, now: float) -> None:
    at, rate = rates.get(task, (now, 0.0))
    fade = max(0.0, 1.0 - max(0.0, now - at) / RATE_S)
    rates[task] = (max(at, now), rate * fade + 1.0 / RATE_S)


def _faded(rates: dict[str, tuple[float, float]], task: str, now: float) -> float:
    at, rate = rates.get(task, (now, 0.0))
    return rate * max(0.0, 1.0 - max(0.0, now - at) / RATE_S)
