"""Pace: how many items a producer may send now, by its rate and by the server's pressure."""

from forebay.core.token_bucket import TokenBucket

BURST_S = 0.05  # seconds of the rate that may go out at once; the figure a paced run can be off by


class Pace:
    """One pace for all of a producer's calls: a refusal of one holds them all.

    `now` is an argument everywhere. After a refusal the items in flight are halved, and grow back by what
    the server takes, so a full server is probed and not flooded.
    """

    __slots__ = ("_allow", "_bucket", "_hold_until", "_in_flight", "in_flight_max")

    def __init__(self, *, rate_per_s: float | None, in_flight_max: int) -> None:
        assert in_flight_max >= 1
        self.in_flight_max = in_flight_max
        self._allow = float(in_flight_max)
        self._in_flight = 0
        self._hold_until = float("-inf")
        self._bucket = (
            None
            if rate_per_s is None
            else TokenBucket(rate_per_s=rate_per_s, burst=max(1.0, rate_per_s * BURST_S))
        )

    def take(self, count_max: int, *, now: float) -> tuple[int, float]:
        """Take room for up to `count_max` items. Returns how many, and when none the seconds to wait.

        The wait is infinite while only answers of calls in flight can make room.
        """
        if now < self._hold_until:
            return 0, self._hold_until - now
        count = min(count_max, int(self._allow) - self._in_flight)
        if count <= 0:
            return 0, float("inf")
        if self._bucket is not None:
            # In bursts: with a call for each item as its moment comes, the calls are what costs.
            wait_s = self._bucket.wait_s(min(count, int(self._bucket.burst)), now=now)
            if wait_s > 0:
                return 0, wait_s
            count = min(count, max(1, int(self._bucket.tokens_at(now))))
            self._bucket.take(count, now=now)
        self._in_flight += count
        return count, 0.0

    def put_back(self, count: int) -> None:
        """Return room that was taken and not used."""
        self._in_flight -= count
        if self._bucket is not None and count:
            self._bucket.put_back(count)

    def answered(self, *, taken: int, refused: int) -> None:
        """Note that a call came back: so many items were taken for good, so many pressed back."""
        self._in_flight -= taken + refused
        if not refused:
            self._allow = min(float(self.in_flight_max), self._allow + taken)

    def held(self, now: float) -> bool:
        """Return whether the producer is being held."""
        return now < self._hold_until

    def hold(self, wait_s: float, *, now: float, shrink: bool = True) -> None:
        """Stop the whole producer for `wait_s` seconds; halves the items in flight once per hold, unless that
        is a turn in a budget: who keeps to it floods nobody.
        """
        if shrink and now >= self._hold_until:
            self._allow = max(1.0, self._allow / 2)
        self._hold_until = max(self._hold_until, now + wait_s)
