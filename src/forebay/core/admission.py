"""admit(): Accepted or Rejected(reason, retry_after_s): the answer at the front door."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from forebay.core.estimator import Eta
from forebay.core.line import Line
from forebay.core.token_bucket import TokenBucket
from forebay.core.watermark import Watermark

RETRY_AFTER_UNKNOWN_S = 5.0  # told when no drain rate was measured yet
RETRY_AFTER_MAX_S = 3600.0
HURRIED_S = 86_000.0  # a job that may wait longer than this is taken without asking when its turn comes
LINE_MAX_S = 60.0  # who is refused by a full queue waits no longer for others who may never come back
SPREAD_SHARE = 0.5  # refused callers are spread over this much more of the wait


class Reason(str, Enum):
    """Why a submission was refused. Stable: the value is the label in metrics."""

    FULL = "full"  # the bound in items
    BYTES_FULL = "bytes_full"  # the bound in bytes
    RATE_LIMITED = "rate_limited"
    TOO_LARGE = "too_large"  # could never fit
    DRAINING = "draining"
    TENANT_RATE = "tenant_rate"  # jobs a second of the tenant
    TENANT_BYTES_RATE = "tenant_bytes_rate"
    QUOTA_JOBS = "quota_jobs"  # open jobs of the tenant
    QUOTA_BYTES = "quota_bytes"
    OVER_BUDGET = "over_budget"  # jobs a second of all who share the named budget
    TOO_LATE = "cannot_meet_deadline"  # its ttl or deadline would pass first
    BREAKER_OPEN = "breaker_open"  # what runs it has been failing
    UPSTREAM_BUSY = "upstream_busy"  # the server behind it takes no calls now
    SHED = "shed"  # the queue stands, and the task's discipline keeps it short
    NO_WORKER = "no_worker"  # no replica is ready, for longer than a request should wait for one


class Accepted(NamedTuple):
    """Take it."""

    pressured: bool = False  # past the soft watermark: welcome, but producers should slow down


class Rejected(NamedTuple):
    """Refuse it, and say when to come back. `retry_after_s` None: coming back does not help."""

    reason: Reason
    retry_after_s: float | None
    limit: float | None = None
    offer: "Offer | None" = None
    told: str = ""  # more of why, for people


class Offer(NamedTuple):
    """What could be done instead: when the job would end, and what it would have to ask for."""

    earliest_p50_at: float
    earliest_p90_at: float
    ttl_needed_s: float | None = None  # to be started in time, nine times of ten; None: the ttl is enough
    deadline_needed_at: float | None = None  # to be done in time, nine times of ten; None: it is enough


class Snapshot(NamedTuple):
    """What admission may know, cheap and fresh."""

    jobs: int  # open jobs of the task, with those on their way to the disk
    bytes: int
    drain_per_s: float | None  # measured completions; None when nothing was measured
    draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPolicy:
    """The bounds of one task's queue, in items and in bytes."""

    jobs_max: int = 100_000
    bytes_max: int = 1 << 30
    soft_share: float = 0.9  # of either bound: the soft watermark
    soft_low_share: float = 0.8  # hysteresis
    spread_share: float = SPREAD_SHARE

    def __post_init__(self) -> None:
        assert self.jobs_max >= 1 and self.bytes_max >= 1
        assert 0 < self.soft_low_share <= self.soft_share <= 1


def too_late(
    *,
    run_at: float,
    expires_at: float | None,
    deadline_at: float | None,
    eta: Eta | None,
    now: float,
    jitter: float,
) -> Rejected | None:
    """Return the refusal of a job that would be accepted in vain, None when it has a chance.

    By the p50, the hopeful one of the two times that are told: refused is what would miss more often than
    not. A ttl must last until the start, a deadline until the end. Nothing measured: nothing refused.
    `jitter` in [0, 1) spreads those who come back.
    """
    if eta is None:
        return None
    starts_late_s = 0.0 if expires_at is None else now + eta.starts_s - expires_at
    ends_late_s = 0.0 if deadline_at is None else now + eta.p50_s - deadline_at
    late_s = max(starts_late_s, ends_late_s)
    if late_s <= 0:
        return None
    doubt_s = eta.p90_s - eta.p50_s
    offer = Offer(
        earliest_p50_at=now + eta.p50_s,
        earliest_p90_at=now + eta.p90_s,
        ttl_needed_s=max(0.0, now + eta.starts_s + doubt_s - run_at) if starts_late_s > 0 else None,
        deadline_needed_at=now + eta.p90_s if ends_late_s > 0 else None,
    )
    after_s = max(0.05, late_s) * (1.0 + SPREAD_SHARE * jitter)
    return Rejected(Reason.TOO_LATE, min(RETRY_AFTER_MAX_S, after_s), offer=offer)


class Gate:
    """The door of one task: its policy, its soft watermark and, when set, its token bucket."""

    __slots__ = ("_line", "_mark", "bucket", "policy")

    def __init__(self, policy: AdmissionPolicy, *, bucket: TokenBucket | None = None) -> None:
        self.policy = policy
        self.bucket = bucket
        self._mark = Watermark(low=policy.soft_low_share, high=policy.soft_share)
        self._line = Line()

    @property
    def pressured(self) -> bool:
        """Whether the soft watermark is raised, as of the last verdict."""
        return self._mark.raised

    def admit(
        self, *, jobs: int, size_b: int, snapshot: Snapshot, now: float, jitter: float
    ) -> Accepted | Rejected:
        """Decide on `jobs` submissions of `size_b` bytes together. Nothing is taken when refused.

        `jitter` in [0, 1) spreads refused callers over the drain schedule so that they do not return
        as one wave.
        """
        policy = self.policy
        if snapshot.draining:
            return Rejected(Reason.DRAINING, RETRY_AFTER_UNKNOWN_S)
        if size_b > policy.bytes_max:
            return Rejected(Reason.TOO_LARGE, None, policy.bytes_max)
        over_jobs = snapshot.jobs + jobs - policy.jobs_max
        over_bytes = snapshot.bytes + size_b - policy.bytes_max
        if over_jobs > 0 or over_bytes > 0:
            share = 0.0 if snapshot.bytes == 0 else over_bytes / snapshot.bytes
            to_drain = max(over_jobs, share * snapshot.jobs, 1)
            reason = Reason.FULL if over_jobs > 0 else Reason.BYTES_FULL
            limit = policy.jobs_max if over_jobs > 0 else policy.bytes_max
            self._mark.see(1.0)
            return Rejected(reason, self.retry_after_s(to_drain, snapshot.drain_per_s, jitter), limit)
        if self.bucket is not None:
            wait_s = self.bucket.take(jobs, now=now)
            if wait_s > 0:
                spread_s = wait_s * (1 + policy.spread_share * jitter)
                return Rejected(Reason.RATE_LIMITED, min(spread_s, RETRY_AFTER_MAX_S), self.bucket.rate_per_s)
        level = max((snapshot.jobs + jobs) / policy.jobs_max, (snapshot.bytes + size_b) / policy.bytes_max)
        if level < policy.soft_low_share:
            self._line.close(now=now)
        return Accepted(self._mark.see(level))

    def told_to_come(self, rejected: Rejected, *, drain_per_s: float | None, now: float) -> Rejected:
        """Return the refusal of one job with its turn behind all that this queue refused before.

        Each who was told to come back takes a place in a line that moves at the measured drain rate, so that
        a burst which obeys comes back as fast as it can be served and no faster. Call it once for each
        refusal that a caller hears of; no other reason than a full queue is changed. The line is bounded by
        LINE_MAX_S, or by the time a full queue drains in, whichever is longer: not all come back.
        """
        if rejected.reason not in {Reason.FULL, Reason.BYTES_FULL} or not drain_per_s:
            return rejected
        after_s = rejected.retry_after_s or 0.0
        most_s = min(max(LINE_MAX_S, after_s, self.policy.jobs_max / drain_per_s), RETRY_AFTER_MAX_S)
        turn_s = self._line.join(step_s=1.0 / drain_per_s, soonest_s=after_s, most_s=most_s, now=now)
        return rejected._replace(retry_after_s=turn_s)

    def retry_after_s(self, to_drain: float, drain_per_s: float | None, jitter: float) -> float:
        """Return when room for `to_drain` jobs is expected, spread by `jitter`."""
        if drain_per_s is None or drain_per_s <= 0:
            wait_s = RETRY_AFTER_UNKNOWN_S
        else:
            wait_s = to_drain / drain_per_s
        # A queue that is just full frees one slot soon; everybody told "soon" would come at once. So
        # the spread covers the time in which a tenth of the queue drains.
        spread_s = wait_s * self.policy.spread_share
        if drain_per_s is not None and drain_per_s > 0:
            spread_s = max(spread_s, min(30.0, 0.1 * self.policy.jobs_max / drain_per_s))
        return min(RETRY_AFTER_MAX_S, wait_s + spread_s * jitter)
