"""RetryBudget: at most a share of a producer's calls may be retries, so that no outage is made a storm."""

RETRY_SHARE = 0.2  # of a retry, that each call which succeeded allows
RETRIES_PER_S = 10.0  # allowed even while nothing succeeds
RETRIES_HELD_MAX = 20.0  # allowed at once; what succeeds beyond that is not saved up


class RetryBudget:
    """One budget for all calls of a client. `now` is an argument; a clock that goes back adds nothing.

    Over any time retries are at most RETRIES_HELD_MAX, RETRY_SHARE of the calls that succeeded, and
    RETRIES_PER_S a second. Nothing is refused for it: a retry that is not covered yet is made later. So what
    hundreds of callers send to a server in trouble is a trickle, and it can get out of it.
    """

    __slots__ = ("_at", "_held")

    def __init__(self) -> None:
        self._held = RETRIES_HELD_MAX
        self._at: float | None = None

    def succeeded(self) -> None:
        """Note that a call was taken."""
        self._held = min(RETRIES_HELD_MAX, self._held + RETRY_SHARE)

    def take(self, *, now: float) -> float:
        """Take one retry, and return the seconds until it may be made, 0.0 for at once.

        Those after it wait behind it; whoever does not make it calls `put_back`.
        """
        if self._at is not None and now > self._at:
            self._held = min(RETRIES_HELD_MAX, self._held + (now - self._at) * RETRIES_PER_S)
        self._at = now if self._at is None else max(self._at, now)
        self._held -= 1.0
        return max(0.0, -self._held / RETRIES_PER_S)

    def put_back(self) -> None:
        """Return a retry that was taken and not made."""
        self._held = min(RETRIES_HELD_MAX, self._held + 1.0)
