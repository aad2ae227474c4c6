"""Quota: what one tenant may still submit, by its rates and by what it holds."""

from forebay.core.admission import Reason, Rejected
from forebay.core.tenant import Held, Limits
from forebay.core.token_bucket import TokenBucket

SPREAD_SHARE = 0.5  # refused callers are spread over this much more of the wait


class Quota:
    """The limits of one tenant with what is left of its rates. One for all its keys."""

    __slots__ = ("bytes", "jobs", "limits")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        rate, flow = limits.rate_per_s, limits.bytes_per_s
        self.jobs = (
            None if rate is None else TokenBucket(rate_per_s=rate, burst=limits.burst or max(1.0, rate))
        )
        self.bytes = None if flow is None else TokenBucket(rate_per_s=flow, burst=flow)

    def look(self, *, jobs: int, size_b: int, held: Held, now: float, jitter: float) -> Rejected | None:
        """Return why `jobs` submissions of `size_b` bytes together are refused, None when they are not.

        Takes nothing; whoever lets them in calls `take` before anything else happens. `held` counts what
        the tenant has in the store and on its way there. Without a time when what it holds stands in the
        way: nobody knows when a tenant's own jobs will have ended.
        """
        limits = self.limits
        if limits.jobs_max is not None and held.jobs + jobs > limits.jobs_max:
            return Rejected(Reason.QUOTA_JOBS, None, limits.jobs_max)
        if limits.bytes_max is not None and held.bytes + size_b > limits.bytes_max:
            return Rejected(Reason.QUOTA_BYTES, None, limits.bytes_max)
        for bucket, count in ((self.jobs, float(jobs)), (self.bytes, self._weight(size_b))):
            if bucket is not None:
                wait_s = bucket.wait_s(count, now=now)
                if wait_s > 0:
                    reason = Reason.TENANT_RATE if bucket is self.jobs else Reason.TENANT_BYTES_RATE
                    return Rejected(reason, wait_s * (1 + SPREAD_SHARE * jitter), bucket.rate_per_s)
        return None

    def take(self, *, jobs: int, size_b: int, now: float) -> None:
        """Take what `look` let in from the rates."""
        if self.jobs is not None:
            self.jobs.take(jobs, now=now)
        if self.bytes is not None:
            self.bytes.take(self._weight(size_b), now=now)

    def _weight(self, size_b: int) -> float:
        # One submission larger than a second's worth waits for a full bucket, not for ever.
        return float(size_b) if self.bytes is None else min(float(size_b), self.bytes.burst)
