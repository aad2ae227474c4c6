"""RetryPolicy: how long to wait before the next try."""

from dataclasses import dataclass

DELAY_FLOOR_S = 0.1  # a handler that asks for "again, now" for ever must not spin the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff with a cap and equal jitter.

    The wait after failed attempt n lies in [d/2, d] with d = min(cap_s, base_s * factor**(n-1)):
    half of it is certain, so nothing returns at once, and half is drawn, so a herd breaks up.
    """

    base_s: float = 1.0
    factor: float = 2.0
    cap_s: float = 3600.0

    def __post_init__(self) -> None:
        assert self.base_s >= 0 and self.factor >= 1 and self.cap_s >= 0

    def delay_s(self, *, attempt: int, jitter: float, after_s: float | None = None) -> float:
        """Return the wait in seconds after failed attempt `attempt` (1 is the first).

        `jitter` is a drawn number in [0, 1). `after_s`, what the handler or an upstream asked for, wins
        when it is larger. Never negative, never below DELAY_FLOOR_S, never overflows, grows with `attempt`
        up to the cap.
        """
        full = self._full_s(max(1, attempt))
        delay = max(DELAY_FLOOR_S, full / 2 + full / 2 * jitter)
        return delay if after_s is None else max(delay, after_s)

    def _full_s(self, attempt: int) -> float:
        if self.base_s == 0:
            return 0.0
        try:
            return min(self.cap_s, self.base_s * self.factor ** (attempt - 1))
        except OverflowError:
            return self.cap_s
