"""Request, Ended, Reservoir: work that somebody waits for, in memory, bounded and in order of its deadlines.

A request is a Job that no engine stores. It is answered once: with its output, an error, or why not.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from forebay.core.breaker import Permit
from forebay.core.job import Job, JobError

REQUESTS_MAX = 10_000  # waiting, per task
REQUEST_BYTES_MAX = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPolicy:
    """The bounds of the requests of one task. The deadline is the bound that is met first."""

    requests_max: int = REQUESTS_MAX  # waiting
    bytes_max: int = REQUEST_BYTES_MAX
    soft_share: float = 0.9  # of either bound and of the time: all that requests below normal may fill
    jobs_share: float = 0.1  # of the replicas' time that waiting jobs get beside waiting requests

    def __post_init__(self) -> None:
        assert self.requests_max >= 1 and self.bytes_max >= 1
        assert 0 < self.soft_share <= 1 and 0 <= self.jobs_share < 1


class End(str, Enum):
    """How a request ended. Stable: the value is a label in metrics."""

    DONE = "done"  # its output, in time
    FAILED = "failed"  # the handler failed, or it was given up after it killed its worker
    LATE = "late"  # its deadline passed, or could no longer be met when its turn came
    BARRED = "barred"  # while it waited the breaker of its task opened, or its upstream took no calls
    SHED = "shed"  # it made room for others
    LOST = "lost"  # its worker died and there was no time for another try
    GONE = "gone"  # whoever waited has hung up
    CLOSED = "closed"  # the server went


class Request:
    """One request, from the door to its answer."""

    __slots__ = (
        "attempt",
        "deadline_at",
        "deaths",
        "end",
        "job",
        "level",
        "permit",
        "probe",
        "releases",
        "seq",
        "started_at",
        "suspect",
        "tag",
    )  # fmt: skip

    def __init__(self, job: Job, seq: int) -> None:
        assert job.deadline_at is not None
        self.job = job
        self.seq = seq
        self.deadline_at = job.deadline_at
        self.tag: int | None = None  # in hand under this tag; None while it waits
        self.started_at: float | None = None  # when it was last sent to a replica
        self.permit: Permit | None = None  # of the breaker of its task
        self.attempt = 0
        self.deaths = 0
        self.releases = 0
        self.suspect = False  # runs alone next
        self.level = 0  # how far it was degraded; 0 is what was asked for
        self.probe = False  # runs whatever is expected of it: what was measured is old
        self.end: End | None = None

    @property
    def key(self) -> "Key":
        """Its place in line."""
        return (self.job.priority, self.deadline_at, self.seq)


Key = tuple[int, float, int]  # priority, deadline, sequence


class Ended(NamedTuple):
    """A request that has ended, and with what."""

    request: Request
    end: End
    output: bytes | None = None
    error: JobError | None = None
    retry_after_s: float | None = None
    ran: bool = False  # it was running when it ended


class Reservoir:
    """The requests of one task that wait: the most urgent class first, in it the earliest deadline, or the
    newest."""

    __slots__ = ("_came", "_line", "_waiting", "bytes", "newest_first", "policy", "tenants")

    def __init__(self, policy: RequestPolicy) -> None:
        self.policy = policy
        self._line: list[Key] = []
        self._waiting: dict[int, Request] = {}  # by sequence
        self._came: deque[Request] = deque()  # in the order they came; some have left
        self.newest_first = False  # inside a class
        self.bytes = 0
        self.tenants: dict[str, int] = {}  # waiting, by tenant

    @property
    def fill(self) -> float:
        """How full it is, in requests or in bytes, whichever is more; 1 is full."""
        return max(len(self._line) / self.policy.requests_max, self.bytes / self.policy.bytes_max)

    def __len__(self) -> int:
        return len(self._line)

    def put(self, request: Request) -> None:
        """Let it wait, in its place."""
        insort(self._line, self._key(request))
        self._waiting[request.seq] = request
        self._came.append(request)
        self.bytes += request.job.size
        tenant = request.job.tenant
        self.tenants[tenant] = self.tenants.get(tenant, 0) + 1

    def take(self, request: Request) -> bool:
        """Take it out; False when it does not wait here."""
        if self._waiting.pop(request.seq, None) is None:
            return False
        del self._line[bisect_left(self._line, self._key(request))]
        if len(self._came) > 2 * len(self._waiting) + 64:  # mostly of requests that have left
            self._came = deque(one for one in self._came if one.seq in self._waiting)
        self.bytes -= request.job.size
        tenant = request.job.tenant
        left = self.tenants[tenant] - 1
        if left:
            self.tenants[tenant] = left
        else:
            del self.tenants[tenant]
        return True

    def ahead(self, priority: int, deadline_at: float) -> int:
        """Return how many would go before a request of this class and deadline that comes now."""
        line = self._line
        if self.newest_first:
            return bisect_left(line, (priority,))
        if line and (priority, deadline_at) >= line[-1][:2]:  # nearly always: it goes to the end
            return len(line)
        return bisect_left(line, (priority, deadline_at, 1 << 62))

    def first(self) -> Request | None:
        """Return the next one, None when none waits."""
        return self._waiting[self._line[0][2]] if self._line else None

    def last(self) -> Request | None:
        """Return the one that goes last, None when none waits."""
        return self._waiting[self._line[-1][2]] if self._line else None

    def oldest(self) -> Request | None:
        """Return the one that came first of all that wait, None when none does."""
        while self._came and self._came[0].seq not in self._waiting:
            self._came.popleft()
        return self._came[0] if self._came else None

    def first_of(self, priority: int) -> Request:
        """Return the next one of a class, of which one waits."""
        return self._waiting[self._line[bisect_left(self._line, (priority,))][2]]

    def turn(self, *, newest_first: bool) -> None:
        """Let the newest of each class go first, or those with the earliest deadline again."""
        if newest_first is not self.newest_first:
            self.newest_first = newest_first
            self._line = sorted(self._key(one) for one in self._waiting.values())

    def _key(self, request: Request) -> "Key":
        return (request.job.priority, -request.seq, request.seq) if self.newest_first else request.key

    def __iter__(self) -> Iterator[Request]:
        """Yield them in order; taking the one just yielded is allowed only when the walk ends there."""
        for key in self._line:
            yield self._waiting[key[2]]

    def at(self, place: int) -> Request:
        """Return the request at a place in line, 0 is the next."""
        return self._waiting[self._line[place][2]]

    def due(self, place: int) -> tuple[int, float]:
        """Return the priority and the deadline of the request at a place in line."""
        priority, deadline_at, _ = self._line[place]
        return priority, deadline_at

    def newest_of(self, tenant: str, priority: int) -> Request | None:
        """Return the last in line of a tenant within a class, None when it has none there."""
        for _, _, seq in reversed(self._line):
            request = self._waiting[seq]
            if request.job.tenant == tenant and request.job.priority == priority:
                return request
        return None

    def crowd(self, tenant: str) -> str | None:
        """Return the tenant with the most waiting, where that is at least two more than this one has."""
        if len(self.tenants) < 2 and tenant in self.tenants:
            return None
        most = max(self.tenants, key=self.tenants.__getitem__, default=None)
        if most is None or most == tenant or self.tenants[most] < self.tenants.get(tenant, 0) + 2:
            return None
        return most
