"""Calibration: keeps p50 and p90 honest when the model is wrong: every scored prediction moves them.

A prediction is a middle and a scale; its score is (true - middle) / scale. Per stage of a job's life the last
scores are kept, and p50 and p90 are quantiles of them. Which quantiles is adapted as well (adaptive conformal
inference): after a miss a higher one is taken, after a hit a slightly lower one, so that over a long time
half and nine tenths hold for any sequence of truths, also when scores are correlated or come late.
"""

from bisect import bisect_left, insort
from collections import deque

SCORES_MAX = 256  # kept per stage
GAIN = 0.02  # how far one score moves the level of the quantile
# How far the levels may go: a long row of jobs that ended early must not make the next ones late.
LEVEL50_MIN, LEVEL50_MAX = 0.36, 0.75
LEVEL90_MIN, LEVEL90_MAX = 0.88, 1.5
# Before anything was scored: the quantiles of a normal law, with a longer tail above: waits have one.
PRIOR = (-1.6, -1.0, -0.7, -0.4, -0.2, 0.0, 0.2, 0.5, 0.9, 1.6, 2.4)
TRUE_COVERED_MAX = 256  # scores that the published coverage is taken over


class Stage:
    """The scores of one stage, and the two offsets that follow from them."""

    __slots__ = ("_level50", "_level90", "_order", "_scores", "early", "late")

    def __init__(self) -> None:
        self._scores: deque[float] = deque(PRIOR)
        self._order = list(PRIOR)
        self._level50 = 0.5
        self._level90 = 0.9
        self.early = self._offset(0.5)
        self.late = self._offset(0.9)

    def score(self, score: float, *, by_p50: bool, by_p90: bool) -> None:
        """Take in one score, and whether what was told held."""
        if len(self._scores) >= SCORES_MAX:
            gone = self._scores.popleft()
            del self._order[bisect_left(self._order, gone)]
        self._scores.append(score)
        insort(self._order, score)
        self._level50 = min(LEVEL50_MAX, max(LEVEL50_MIN, self._level50 + GAIN * (0.5 - by_p50)))
        self._level90 = min(LEVEL90_MAX, max(LEVEL90_MIN, self._level90 + GAIN * (0.9 - by_p90)))
        self.early = self._offset(self._level50)
        self.late = max(self.early, self._offset(self._level90))

    def _offset(self, level: float) -> float:
        """Return the quantile of the scores; a level above 1 lies beyond what was seen."""
        order = self._order
        if level >= 1.0:
            low, high = order[0], order[-1]
            return high + (level - 1.0) * (high - low + 0.2)
        at = level * (len(order) - 1)
        before = int(at)
        return order[before] + (order[before + 1] - order[before]) * (at - before)


class Coverage:
    """How much of what was told held, over the last scores."""

    __slots__ = ("_by_p50", "_by_p90", "_held", "count")

    def __init__(self) -> None:
        self._held: deque[tuple[bool, bool]] = deque()
        self._by_p50 = self._by_p90 = 0
        self.count = 0  # scored in all

    def add(self, *, by_p50: bool, by_p90: bool) -> None:
        """Count one scored prediction."""
        if len(self._held) >= TRUE_COVERED_MAX:
            old50, old90 = self._held.popleft()
            self._by_p50 -= old50
            self._by_p90 -= old90
        self._held.append((by_p50, by_p90))
        self._by_p50 += by_p50
        self._by_p90 += by_p90
        self.count += 1

    def shares(self) -> tuple[float, float] | None:
        """Return the share that ended by p50 and by p90, None when nothing was scored."""
        held = len(self._held)
        return (self._by_p50 / held, self._by_p90 / held) if held else None
