"""What becomes of a delivery after a try, and which endpoints may be tried now: decisions alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from forebay.core.outbox import Delivery, DeliveryState, DeliveryStep, Try
from forebay.core.retry import RetryPolicy

GONE = 410
RESTS_AFTER = 3  # failures in a row after which an endpoint gets one try at a time, with rests between
REST_MAX_S = 60.0
ENDPOINTS_MAX = 10_000  # endpoints remembered because they failed


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    """How long and how often a delivery is tried."""

    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(base_s=5.0, factor=2.0, cap_s=3600.0))
    window_s: float = 86_400.0  # tried for so long ...
    tries_min: int = (
        8  # ... and at least so often: a clock that jumps, or a server that was off, gives up nothing
    )
    retry_after_max_s: float = 3600.0  # what a receiver may ask for at most


def after_try(
    delivery: Delivery,
    tried: Try,
    *,
    policy: DeliveryPolicy,
    now: float,
    jitter: float,
    retry_after_s: float | None = None,
) -> DeliveryStep:
    """Return what a try leads to: delivered on any 2xx, disabled on 410, else again after a backoff, or
    given up. `jitter` is a drawn number in [0, 1); `retry_after_s` is what the receiver asked for.
    """
    job_id, status = delivery.job_id, tried.status
    if status is not None and 200 <= status < 300:
        return DeliveryStep(job_id, DeliveryState.DELIVERED, tried, now)
    if status == GONE:
        return DeliveryStep(job_id, DeliveryState.DISABLED, tried, now)
    tries = max(1, delivery.tries - delivery.before)
    asked_s = None if retry_after_s is None else min(max(0.0, retry_after_s), policy.retry_after_max_s)
    due_at = now + policy.retry.delay_s(attempt=tries, jitter=jitter, after_s=asked_s)
    if tries >= policy.tries_min and due_at > delivery.since + policy.window_s:
        return DeliveryStep(job_id, DeliveryState.GIVEN_UP, tried, now)
    return DeliveryStep(job_id, DeliveryState.WAITING, tried, now, due_at)


class Endpoints:
    """How many tries each endpoint may have in flight, so that dead ones leave room for the others.

    One endpoint gets at most `each_max`. One that failed RESTS_AFTER times in a row gets one try at a time
    and then a rest that grows to REST_MAX_S; all of these together get at most half of all tries.
    """

    def __init__(self, *, total_max: int, each_max: int, step: int) -> None:
        self._total_max = total_max
        self._each_max = each_max
        self._step = min(step, each_max)  # tries are claimed in steps, since a claim is a write
        self._flying: dict[str, int] = {}
        self._failures: dict[str, int] = {}
        self._rests_until: dict[str, float] = {}
        self.in_flight = 0

    @property
    def free(self) -> int:
        """How many more tries may start."""
        return self._total_max - self.in_flight

    def started(self, endpoint: str) -> None:
        """Count a try that begins."""
        self.in_flight += 1
        self._flying[endpoint] = self._flying.get(endpoint, 0) + 1

    def ended(self, endpoint: str, *, worked: bool, now: float) -> None:
        """Count a try that has ended."""
        self.in_flight -= 1
        left = self._flying[endpoint] - 1
        if left:
            self._flying[endpoint] = left
        else:
            del self._flying[endpoint]
        if worked:
            self._failures.pop(endpoint, None)
            self._rests_until.pop(endpoint, None)
            return
        failures = self._failures.pop(endpoint, 0) + 1
        self._failures[endpoint] = failures  # newest last
        if failures >= RESTS_AFTER:
            self._rests_until[endpoint] = now + min(REST_MAX_S, 2.0 ** min(failures - RESTS_AFTER, 10))
        if len(self._failures) > ENDPOINTS_MAX:
            oldest = next(iter(self._failures))
            del self._failures[oldest]
            self._rests_until.pop(oldest, None)

    def rooms(self, *, now: float) -> Mapping[str, int]:
        """Return for each endpoint that is not idle and well how many tries it may begin."""
        rooms: dict[str, int] = {}
        for endpoint, flying in self._flying.items():
            room = self._each_max - flying
            rooms[endpoint] = room if room >= self._step else 0
        failing = sum(self._flying.get(endpoint, 0) for endpoint in self._rests_until)
        for endpoint, until in self._rests_until.items():
            may = until <= now and endpoint not in self._flying and failing < self._total_max // 2
            failing += may
            rooms[endpoint] = int(may)
        return rooms

    def wakes_at(self, *, now: float) -> float | None:
        """Return when the next rest ends, None when none is on."""
        return min((until for until in self._rests_until.values() if until > now), default=None)
