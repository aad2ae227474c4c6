"""ServiceFit: how long a run of n items takes, `fixed + n * each`, fitted online."""

FADE = 0.97  # weight kept per observation: the last ~30 runs decide
SPREAD_GAIN = 0.1


class ServiceFit:
    """Exponentially weighted least squares over (items, seconds), plus the mean deviation.

    With runs of one size only, the slope is unknown; then a run is taken as proportional to its items,
    which is the cautious side for smaller runs and what a model's owner expects for larger ones.
    """

    __slots__ = ("_n", "_nn", "_nt", "_t", "_told", "_w", "deviation_s", "runs")

    def __init__(self) -> None:
        self._told: dict[int, float] = {}  # by items, since the last observation: it is asked much more often
        self._w = self._n = self._nn = self._t = self._nt = 0.0
        self.deviation_s = 0.0
        self.runs = 0

    def observe(self, items: int, took_s: float) -> None:
        """Take in one run of `items` that took `took_s` seconds."""
        if self.runs:
            expected = self.run_s(items)
            assert expected is not None
            self.deviation_s += SPREAD_GAIN * (abs(took_s - expected) - self.deviation_s)
        self._w = self._w * FADE + 1.0
        self._n = self._n * FADE + items
        self._nn = self._nn * FADE + items * items
        self._t = self._t * FADE + took_s
        self._nt = self._nt * FADE + items * took_s
        self.runs += 1
        self._told.clear()

    def run_s(self, items: int) -> float | None:
        """Return the expected seconds of a run of `items`, None before the first observation."""
        told = self._told.get(items)
        if told is None and self.runs:
            told = self._told[items] = self._law(items)
        return told

    def _law(self, items: int) -> float:
        spread = self._w * self._nn - self._n * self._n
        if spread > 1e-3 * self._nn * self._w:
            each = max(0.0, (self._w * self._nt - self._n * self._t) / spread)
            fixed = max(0.0, (self._t - each * self._n) / self._w)
            return fixed + each * items
        return self._t / self._n * items
