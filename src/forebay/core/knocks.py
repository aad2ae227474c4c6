"""Knocks: who has just connected and said nothing yet. What they ask may run with what is there already."""

from typing import Final

SILENT_S: Final = 0.002  # who says nothing for so long is not about to


class Knocks:
    """The silent newcomers of one door. Holds those of the last moment alone."""

    __slots__ = ("_silent",)

    def __init__(self) -> None:
        self._silent: dict[int, float] = {}  # when each came, the newest last

    def came(self, who: int, *, now: float) -> None:
        """Somebody has connected."""
        silent = self._silent
        while silent and now - silent[oldest := next(iter(silent))] > SILENT_S:
            del silent[oldest]
        silent.pop(who, None)
        silent[who] = now

    def spoke(self, who: int) -> None:
        """They have said something, or have gone."""
        self._silent.pop(who, None)

    def until(self) -> float | None:
        """Return how long to count on the newest of them; None when all have spoken."""
        silent = self._silent
        return silent[next(reversed(silent))] + SILENT_S if silent else None
