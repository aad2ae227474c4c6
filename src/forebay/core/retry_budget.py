"""RetryBudget: at most a share of a producer's calls may be retries, so that no outage is made a storm."""

RETRY_SHARE = 0.2  # of a retry, that each call which succeeded allows
RETRIES_PER_S = 10.0  # allowed even while nothing succeeds
RETRIES_HELD_S = 2.0  # of them are allowed at once; what succeeds beyond that is not saved up
RETRIES_HELD_MAX = RETRIES_PER_S * RETRIES_HELD_S


class RetryBudget:
    """One budget for all calls of a client. `now` is an argument; a clock that goes back adds nothing.

    Over any time retries are at most RETRY_SHARE of the calls that succeeded, `per_s` a second, and those of
    RETRIES_HELD_S at once (one at least). Nothing is refused for it: a retry that is not covered yet is made
    later. So what hundreds of callers send to a server in trouble is a trickle, and it can get out of it.
    """

    __slots__ = ("_at", "_held", "_held_max", "_per_s")

    def __init__(self, per_s: float = RETRIES_PER_S) -> None:
        assert per_s > 0
        self._per_s = per_s
        self._held = self._held_max = max(1.0, RETRIES_HELD_S * per_s)
        self._at: float | None = None

    def succeeded(self) -> None:
        """Note that a call was taken."""
        self._held = min(self._held_max, self._held + RETRY_SHARE)

    def take(self, *, now: float) -> float:
        """Take one retry, and return the seconds until it may be made, 0.0 for at once.

        Those after it wait behind it; whoever does not make it calls `put_back`.
        """
        if self._at is not None and now > self._at:
            self._held = min(self._held_max, self._held + (now - self._at) * self._per_s)
        self._at = now if self._at is None else max(self._at, now)
        self._held -= 1.0
        return max(0.0, -self._held / self._per_s)

    def put_back(self) -> None:
        """Return a retry that was taken and not made."""
        self._held = min(self._held_max, self._held + 1.0)
