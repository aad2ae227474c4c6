"""ServiceFit: how long a run of n items takes, `fixed + n * each`, fitted online."""

from math import sqrt

FADE = 0.97  # weight kept per observation, of what it tells anew: the last ~30 such runs decide
SPREAD_GAIN = 0.1
MISS_MOST = 3.0  # times what was expected: further off was a machine that stood still, and says no more
KNOWN_RUNS = 4  # worth of a size; before that nothing is known well enough to be off it
SAME_SIZE = 0.1
SPREAD_LEAST = 1e-3  # less than this share of it, and the runs were of one size


class ServiceFit:
    """Exponentially weighted least squares over (items, seconds), plus the mean deviation.

    A run takes the place of what was known of runs of its size, and of nothing else: an hour of full batches
    says nothing of single items, so what these took is not forgotten over it.

    With runs of one size only, the slope is unknown; then a run is taken as proportional to its items,
    which is the cautious side for smaller runs and what a model's owner expects for larger ones.
    """

    __slots__ = ("_n", "_nn", "_nt", "_t", "_told", "_w", "deviation_s", "runs")

    def __init__(self) -> None:
        self._told: dict[int, float] = {}  # by items, since the last observation: it is asked much more often
        self._w: float = 0.0
        self._n: float = 0.0
        self._nn: float = 0.0
        self._t: float = 0.0
        self._nt: float = 0.0
        self.deviation_s = 0.0
        self.runs = 0

    def observe(self, items: int, took_s: float) -> None:
        """Take in one run of `items` that took `took_s` seconds."""
        if self.runs and self.knows(items):
            expected = self.run_s(items)
            assert expected is not None
            miss_s = min(abs(took_s - expected), MISS_MOST * expected)
            self.deviation_s += SPREAD_GAIN * (miss_s - self.deviation_s)
        self._fade(items)
        self._w += 1.0
        self._n += items
        self._nn += items * items
        self._t += took_s
        self._nt += items * took_s
        self.runs += 1
        self._told.clear()

    def knows(self, items: int) -> bool:
        """Say whether what was seen tells of runs of this size, and not of others alone. What such a run
        should take is a guess otherwise, and a miss says nothing of the service."""
        spread = self._w * self._nn - self._n * self._n
        if not self._has_slope():
            return abs(items * self._w - self._n) <= SAME_SIZE * self._n
        doubt = self._nn - 2.0 * self._n * items + self._w * items * items
        return doubt * KNOWN_RUNS <= spread

    def likely_s(self, items: int) -> float | None:
        """Return what a run may well take, None before the first observation. Where runs of one size alone
        were seen a larger one takes as long as it, or as many times as long as it is larger: this is the
        middle of the two, while `run_s` is what it surely does not exceed."""
        surely_s = self.run_s(items)
        if surely_s is None or not self.guesses(items):
            return surely_s
        return surely_s * sqrt(self._n / (self._w * items))

    def guesses(self, items: int) -> bool:
        """Say whether nobody knows how much longer than a smaller run one of this size takes: runs of one
        smaller size alone were seen."""
        larger = self.runs > 0 and items * self._w > self._n and not self._has_slope()
        return larger and not self.knows(items)

    def _has_slope(self) -> bool:
        return self._w * self._nn - self._n * self._n > SPREAD_LEAST * self._nn * self._w

    def _fade(self, items: int) -> None:
        """Forget a little of what was known of runs of this size: of the normal equations, the part that lies
        in their direction."""
        w_n, n_nn = self._w + self._n * items, self._n + self._nn * items
        weight = w_n + n_nn * items
        if weight <= 0.0:
            return
        took, share = self._t + self._nt * items, (1.0 - FADE) / weight
        self._w -= share * w_n * w_n
        self._n -= share * w_n * n_nn
        self._nn -= share * n_nn * n_nn
        self._t -= share * w_n * took
        self._nt -= share * n_nn * took

    def run_s(self, items: int) -> float | None:
        """Return the expected seconds of a run of `items`, None before the first observation."""
        told = self._told.get(items)
        if told is None and self.runs:
            told = self._told[items] = self._law(items)
        return told

    def _law(self, items: int) -> float:
        spread = self._w * self._nn - self._n * self._n
        if self._has_slope():
            each = max(0.0, (self._w * self._nt - self._n * self._t) / spread)
            fixed = max(0.0, (self._t - each * self._n) / self._w)
            return fixed + each * items
        return self._t / self._n * items
