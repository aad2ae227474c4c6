"""ArrivalWindows: how many arrive in a second, over sliding windows: the mean, the p99 and the largest.

The rate a basin must be sized for is neither the mean (bursts are above it) nor the largest second ever seen
(one accident). It is the p99 of the counts in windows of one second that slide in steps of 100 ms. Windows in
which nothing came are left out: a night of silence must not make the bursts of the day look small.
"""

from typing import Final, NamedTuple

from forebay.core.tally import Tally, together

STEPS_PER_S: Final = 10  # a window is so many steps: one second
MEAN_STEPS: Final = 100  # the mean is over ten seconds
PEAK: Final = 0.99  # the quantile a basin is sized for
AGE_S: Final = 600.0  # of one generation of windows
AGES_MAX: Final = 6  # generations kept: between 50 and 60 minutes


class ArrivalPeaks(NamedTuple):
    """What the windows of the last hour held. Rates are per second; 0 where nothing came."""

    p99_per_s: float
    max_per_s: float
    windows: int  # windows in which something came


class ArrivalWindows:
    """The arrivals of one task. An arrival costs one comparison and one addition; memory is bounded.

    `keep` True keeps every window, for a file that is read from end to end.
    Not promised: more than 1/64 of exactness above 128 a second, nor windows between the steps.
    """

    __slots__ = ("_ages", "_count", "_keep", "_next_age_at", "_step", "_steps", "_until", "_window")

    def __init__(self, *, keep: bool = False) -> None:
        self._count = 0  # in the open step
        self._step = 0  # number of the open step
        self._until = float("-inf")  # when the open step ends
        self._steps = [0] * MEAN_STEPS  # the closed ones, by number
        self._window = 0  # what came in the last second of closed steps
        self._ages = [Tally()]  # of windows by their count; newest generation first
        self._next_age_at = float("-inf")
        self._keep = keep

    def arrived(self, count: int, *, now: float) -> None:
        """Count `count` arrivals at `now`; a `now` before the last one counts as the last one."""
        if now >= self._until:
            self._roll(now)
        self._count += count

    def mean_per_s(self, *, now: float) -> float:
        """Return arrivals a second over the ten seconds before the open step."""
        if now >= self._until:
            self._roll(now)
        return sum(self._steps) * STEPS_PER_S / MEAN_STEPS

    def peaks(self, *, now: float) -> ArrivalPeaks:
        """Return the p99 and the largest count of a window over the last hour."""
        if now >= self._until:
            self._roll(now)
        windows = together(self._ages)
        return ArrivalPeaks(float(windows.quantile(PEAK)), float(windows.largest), windows.total)

    def _roll(self, now: float) -> None:
        """Close the steps that ended by `now`."""
        step = int(now * STEPS_PER_S)
        if self._until == float("-inf"):
            self._next_age_at = now + AGE_S
            self._step = step
        for _ in range(min(step - self._step, STEPS_PER_S + 1)):
            self._close()
        # The window is empty now; so are the steps that are left, however many they are.
        for empty in range(self._step, min(step, self._step + MEAN_STEPS)):
            self._steps[empty % MEAN_STEPS] = 0
        self._step = max(self._step, step)
        self._until = (self._step + 1) / STEPS_PER_S
        if now >= self._next_age_at and not self._keep:
            passed = 1 + int((now - self._next_age_at) / AGE_S)
            self._ages = [*(Tally() for _ in range(min(passed, AGES_MAX))), *self._ages][:AGES_MAX]
            self._next_age_at += AGE_S * passed

    def _close(self) -> None:
        leaves = self._steps[(self._step - STEPS_PER_S) % MEAN_STEPS]
        self._steps[self._step % MEAN_STEPS] = self._count
        self._window += self._count - leaves
        self._step += 1
        self._count = 0
        if self._window:
            self._ages[0].add(self._window)
