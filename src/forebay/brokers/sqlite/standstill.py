"""Standstill: since when nobody could renew a lease, so that no holder loses one for it.

Whoever owns the file is the only one to renew through: while its process stood still, or its disk was full,
no lease could be.
"""

import math
from typing import Final

BEAT_S: Final = 0.5  # the loop is known to turn this often ...
STALL_S: Final = 1.0  # ... and a beat later than this means that it stood still, the process with it
# Where leases are short so is the time that costs one. A holder renews every third of a lease what is older
# than a sixth of it (core.renewing): late by less than a third each time, it is never too late.
STALL_SHARE: Final = 1 / 3
BEAT_SHARE: Final = 1 / 6


class Standstill:
    """The time that is owed to every lease. Knows no clock."""

    def __init__(self, now: float) -> None:
        self.lease_s = math.inf  # of the last lease that was asked for
        self.beat_at = now  # when the loop was last seen to turn
        self._since: float | None = None
        self._taken: float | None = None  # by the flush that runs

    @property
    def beat_s(self) -> float:
        """How often `look` should be called at least."""
        return min(BEAT_S, BEAT_SHARE * self.lease_s)

    def look(self, now: float) -> None:
        """The loop turns: when it was last seen to is so long ago that it must have stood still, or not."""
        if now - self.beat_at > min(BEAT_S + STALL_S, STALL_SHARE * self.lease_s):
            self.deaf(self.beat_at)
        self.beat_at = now

    def deaf(self, since: float) -> None:
        """No renewal was taken since then."""
        if self._since is None:
            self._since = since

    def take(self) -> float | None:
        """Return since when, to be forgiven by the flush that begins; None when nothing is owed."""
        self._taken, self._since = self._since, None
        return self._taken

    def put_back(self) -> None:
        """Nothing of that flush was stored: what it took is owed still."""
        if self._taken is not None:
            self._since, self._taken = self._taken, None
