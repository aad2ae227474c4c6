"""TokenBucket: a rate limit by (count, now): never more than burst + rate * elapsed."""


class TokenBucket:
    """Tokens flow in at `rate_per_s` up to `burst`. Tolerates a clock that goes backwards."""

    __slots__ = ("_at", "_tokens", "burst", "rate_per_s")

    def __init__(self, *, rate_per_s: float, burst: float) -> None:
        assert rate_per_s > 0 and burst > 0
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._tokens = burst
        self._at: float | None = None

    def tokens_at(self, now: float) -> float:
        """Return the tokens there are at `now`; takes none."""
        if self._at is None or now <= self._at:
            return self._tokens
        return min(self.burst, self._tokens + (now - self._at) * self.rate_per_s)

    def wait_s(self, count: float, *, now: float) -> float:
        """Return the seconds until `count` tokens are there, 0.0 when they are, infinity when they never
        will be; takes none."""
        missing = count - self.tokens_at(now)
        if missing <= 1e-9:
            return 0.0
        return float("inf") if count > self.burst else missing / self.rate_per_s

    def take(self, count: float, *, now: float) -> float:
        """Take `count` tokens and return 0.0, or take none and return the seconds until they are there.

        Returns infinity when `count` is more than the bucket can ever hold.
        """
        tokens = self.tokens_at(now)
        self._at = now if self._at is None else max(self._at, now)
        self._tokens = tokens
        if tokens + 1e-9 >= count:
            self._tokens = max(0.0, tokens - count)
            return 0.0
        if count > self.burst:
            return float("inf")
        return (count - tokens) / self.rate_per_s

    def put_back(self, count: float) -> None:
        """Return tokens that were taken for something that did not happen."""
        self._tokens = min(self.burst, self._tokens + count)
