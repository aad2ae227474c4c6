"""What was measured of a task, and what was declared of it, as sizing takes them."""

from typing import NamedTuple

from forebay.core.estimator import Estimator
from forebay.core.retry import RetryPolicy
from forebay.core.sizing.findings import Limits
from forebay.core.task import TaskSpec


class Measured(NamedTuple):
    """The service of one task as its runs were: `fixed_s + n * each_s` for n items."""

    fixed_s: float
    each_s: float
    variance: float  # of one run, relative to its mean squared
    runs: int
    p999_s: float  # of one run; the slowest when there were fewer than 1,000


def measured(estimator: Estimator) -> Measured | None:
    """Return what is known of the service, None before the first run."""
    service = estimator.service
    facts, late = service.facts(), service.times.late()
    if facts is None or late is None:
        return None
    more = service.batch_max - 1
    each_s = max(0.0, facts.full_s - facts.single_s) / more if more else facts.item_s
    fixed_s = max(0.0, facts.full_s - service.batch_max * each_s)
    return Measured(fixed_s, each_s, facts.variance, late.runs, late.p999_s)


def retry_waits_s(policy: RetryPolicy, attempts_max: int) -> tuple[float, ...]:
    """Return the longest pause after each attempt that another one may follow."""
    return tuple(policy.delay_s(attempt=n, jitter=1.0) for n in range(1, attempts_max))


def declared(
    spec: TaskSpec,
    *,
    lease_s: float,
    heartbeat_s: float,
    grace_s: float,
    queue_max: int,
    queue_bytes_max: int,
    disk_free_b: int | None = None,
) -> Limits:
    """Return the limits of a task as they are before anything ran. Nothing says that runs take as long as
    the timeout, so a shorter grace is no contradiction yet."""
    return Limits(
        task=spec.name,
        lease_s=lease_s,
        heartbeat_s=heartbeat_s,
        timeout_s=spec.timeout_s,
        ttl_s=spec.ttl_s,
        grace_s=grace_s,
        attempts_max=spec.attempts_max,
        retry_waits_s=retry_waits_s(spec.settle.retry, spec.attempts_max),
        batch_wait_s=spec.batch_wait_s,
        deadline_s=spec.deadline_s,
        queue_max=spec.queue_max or queue_max,
        queue_bytes_max=spec.queue_bytes_max or queue_bytes_max,
        disk_free_b=disk_free_b,
    )
