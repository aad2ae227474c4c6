"""Codel: the controlled-delay law of RFC 8289: how fast a queue that stands is relieved."""

from enum import Enum
from math import sqrt

TARGET_MIN_S = 0.005  # RFC 8289, 4.4
INTERVAL_MIN_S = 0.1
INTERVAL_TARGETS = 10.0  # an interval is so many targets: the target is 5 to 10 % of it, says RFC 8289
RESUMED_INTERVALS = 16.0  # an overload that comes back within so many goes on at the pace it had


class Discipline(str, Enum):
    """How requests of one class wait once there are more than can be done. A task's option."""

    DEADLINE = "deadline"  # the earliest deadline first, as deep as the deadlines allow
    NEWEST = "newest"  # while the queue stands the newest first
    CODEL = "codel"  # while the queue stands it is relieved until it moves again


class Codel:
    """Sees who is about to start, and says who does not. No clock, no queue: it knows waits and instants.

    A queue stands when nobody who left it within an interval had waited less than the target. Then one is
    dropped, the next after interval / sqrt(2), then / sqrt(3) and so on, until a wait is below the target.
    """

    __slots__ = ("_above_until", "_count", "_count_before", "_drop_at", "standing")

    def __init__(self) -> None:
        self.standing = False
        self._above_until: float | None = None  # when the interval ends in which all waits were too long
        self._drop_at = 0.0
        self._count = 0  # dropped since the queue stands
        self._count_before = 0  # the count with which it began to stand the last time

    def drops(self, wait_s: float, *, few: bool, target_s: float, interval_s: float, now: float) -> bool:
        """Say whether the one that leaves the queue after `wait_s` is dropped; ask again for the next one
        then. `few`: what waits goes into one run, so that dropping would leave the replica idle.
        """
        too_long = self._too_long(wait_s, few, target_s, interval_s, now)
        if not self.standing:
            if too_long:
                self._begin(interval_s, now)
            return too_long
        if not too_long:
            self.standing = False
            return False
        if now < self._drop_at:
            return False
        self._count += 1
        self._drop_at += interval_s / sqrt(self._count)
        return True

    def _begin(self, interval_s: float, now: float) -> None:
        self.standing = True
        since = self._count - self._count_before
        resumed = since > 1 and now - self._drop_at < RESUMED_INTERVALS * interval_s
        self._count = since if resumed else 1
        self._count_before = self._count
        self._drop_at = now + interval_s / sqrt(self._count)

    def _too_long(self, wait_s: float, few: bool, target_s: float, interval_s: float, now: float) -> bool:
        if few or wait_s < target_s:
            self._above_until = None
            return False
        if self._above_until is None:
            self._above_until = now + interval_s
            return False
        return now >= self._above_until
