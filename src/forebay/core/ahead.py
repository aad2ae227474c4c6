"""Ahead: how much work to have in hand beyond what runs: as long as a lease takes, so that nobody waits."""

from typing import Final

AHEAD_S: Final = 0.005  # expected work a replica may have beyond what it runs, at least
AHEAD_MAX_S: Final = 0.05  # and at most, however slow the store is: what waits here runs nowhere else
_WEIGHT: Final = 0.2  # of the newest lease


class Ahead:
    """One number for all tasks of a set: leases of all of them go to the same store."""

    __slots__ = ("_lease_s", "s")

    def __init__(self) -> None:
        self.s = AHEAD_S
        self._lease_s = 0.0

    def took(self, lease_s: float) -> None:
        """Take in how long a lease took that brought something."""
        bounded_s = min(AHEAD_MAX_S, max(0.0, lease_s))  # one that hung is soon forgotten
        self._lease_s += _WEIGHT * (bounded_s - self._lease_s)
        self.s = max(AHEAD_S, self._lease_s)
