"""LiveFit: ServiceFit that notices within a few runs that the service has become another."""

from forebay.core.service import KNOWN_RUNS, ServiceFit

JUMP_RUNS = 3  # so many runs in a row, all on one side and all far off, are another service
JUMP_SHARE = 0.2  # far off: more than this share of what was expected
JUMP_SPREADS = 2.5  # and more than so many mean deviations
DRIFT_RUNS = 8  # or so many, all on one side
DRIFT_SHARE = 0.08
KEPT = 0.3  # weight of what was known before, after a jump


class LiveFit(ServiceFit):
    """Predictions for deadlines cannot wait for thirty runs to fade: a model that takes twice as long from
    one run to the next is believed after three."""

    __slots__ = ("_drift", "_odd")

    def __init__(self) -> None:
        super().__init__()
        self._odd: list[Run] = []  # far off, on one side, the last of all; not taken in before they are three
        self._drift: list[Run] = []  # a little off, on one side, the last of all

    def observe(self, items: int, took_s: float) -> None:
        """Take in one run of `items` that took `took_s` seconds."""
        expected_s = self.run_s(items) if self.runs >= KNOWN_RUNS and self.knows(items) else None
        if not expected_s:  # of a size that is new, it is no jump: it is what was to be learned
            super().observe(items, took_s)
            return
        run = (items, took_s, took_s > expected_s)
        off_s = abs(took_s - expected_s)
        if off_s > max(JUMP_SHARE * expected_s, JUMP_SPREADS * self.deviation_s):
            self._note_odd(run)
            return
        self._take_odd()
        super().observe(items, took_s)
        if off_s <= DRIFT_SHARE * expected_s or (self._drift and self._drift[-1][2] != run[2]):
            self._drift.clear()
        if off_s > DRIFT_SHARE * expected_s:
            self._drift.append(run)
        if len(self._drift) >= DRIFT_RUNS:
            self._rescale(self._drift)
            self._drift.clear()

    def correct(self, items: int, took_s: float) -> None:
        """Take in so many items of a longer run, far off what was expected: together they are sure of it, and
        nobody waits for two runs more of the kind."""
        if self.run_s(items):
            self._take_odd()
            self._rescale([(items, took_s, True)])

    def _note_odd(self, run: "Run") -> None:
        if self._odd and self._odd[-1][2] != run[2]:
            self._take_odd()
        self._odd.append(run)
        if len(self._odd) >= JUMP_RUNS:
            self._rescale(self._odd)
            self._drift.clear()
            self._take_odd()

    def _take_odd(self) -> None:
        """Take in what was held back: it was no other service, or it is the law now."""
        odd, self._odd = self._odd, []
        for items, took_s, _ in odd:
            super().observe(items, took_s)

    def _rescale(self, row: "list[Run]") -> None:
        """Let these runs say how long runs take; what was known before keeps its shape, not its weight."""
        ratios = sorted(took_s / max(self.run_s(items) or 0.0, 1e-9) for items, took_s, _ in row)
        scale = ratios[len(ratios) // 2]
        self._t *= KEPT * scale
        self._nt *= KEPT * scale
        self._w *= KEPT
        self._n *= KEPT
        self._nn *= KEPT
        self._told.clear()
        self.deviation_s *= scale


Run = tuple[int, float, bool]  # items, seconds, longer than expected
