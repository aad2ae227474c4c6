"""RunTimes: how long runs take at worst: the p99.9 of the last ten to twenty thousand."""

from typing import Final, NamedTuple

from forebay.core.tally import Tally, together

GENERATION: Final = 10_000  # runs
LATE: Final = 0.999
TICK_S: Final = 1e-6


class Late(NamedTuple):
    """The slow end of the runs. Below 1,000 runs `p999_s` is the slowest of them."""

    runs: int
    p999_s: float


class RunTimes:
    """Two generations of runs, by microseconds. One run costs a dictionary access; memory is bounded."""

    __slots__ = ("_before", "_newest")

    def __init__(self) -> None:
        self._newest = Tally()
        self._before = Tally()

    def add(self, took_s: float) -> None:
        """Take in one run."""
        if self._newest.total >= GENERATION:
            self._before, self._newest = self._newest, Tally()
        self._newest.add(int(took_s / TICK_S))

    def late(self) -> Late | None:
        """Return the slow end, None before the first run. Never off by more than 1/64."""
        both = together((self._before, self._newest))
        return Late(both.total, both.quantile(LATE) * TICK_S) if both.total else None
