"""ServiceModel: how long runs of one task take: a batch law, the spread around it, and size classes.

The law is `fixed + n * each` (core.service.ServiceFit). Around it the ratios measured / expected of the
last runs are kept, so a spread is known in the same unit for every batch size. A run of ratios that all lie
at one end of what was known is another regime: what was known before it is forgotten.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from typing import NamedTuple

from forebay.core.estimator.run_times import RunTimes
from forebay.core.service import ServiceFit

SAMPLES_MAX = 128  # runs
BRIEF_S = 0.005  # of runs briefer than this
SKIP_MAX = 31  # so many are passed over after each that is taken in
NEW_SHARE = 8  # facts are computed anew when one in so many samples is new
REGIME_RUNS = 8  # so many runs in a row, all at one end, are another regime
REGIME_SHIFT = 0.36  # mean rank of them off the middle; by chance one in some thousand runs
SAME = 0.02  # ratios this near are the same
CLIP = 4.0  # an outlier counts for the law as at most this many times what was expected
CLASSES_MAX = 16
CLASS_PRIOR = 4.0  # runs: a class with fewer is mostly taken for average
BLOCK_RUNS = 8  # runs whose mean is compared with other blocks': what does not average out
FEW = 8  # below so many runs the measured spread is not believed
FEW_VARIANCE = 0.25  # relative variance assumed then
DOUBT_FLOOR = 0.02  # relative: no mean is known better


class Facts(NamedTuple):
    """What is known of the service of one task at one moment. Ratios are measured / expected by the law."""

    runs: int
    single_s: float  # of a run of one
    full_s: float  # mean of a run of `batch_max`
    item_s: float  # busy replica-seconds of one job in a full batch
    variance: float  # relative, of one run
    doubt: float  # relative variance of the mean: it does not shrink with the number of runs ahead
    ratios: list[float]  # sorted, without the effect of the size class
    ratio50: float
    ratio90: float
    size: float  # mean items of the last runs
    classes: dict[int, float]  # size class -> factor

    def factor(self, size_b: int) -> float:
        """Return how much longer than the average a run of inputs of this size takes."""
        return self.classes.get(class_of(size_b), 1.0) if self.classes else 1.0

    def rest(self, ran: float) -> tuple[float, float]:
        """Return median and 0.9 quantile of what is left of a run that has run `ran` (a ratio) already."""
        longer = bisect_right(self.ratios, ran)
        left = len(self.ratios) - longer
        if left >= 3 or (left > 0 and len(self.ratios) < FEW):
            above = self.ratios[longer:]
            return quantile(above, 0.5) - ran, quantile(above, 0.9) - ran
        # Longer than nearly all that was seen: nobody knows; what ran so long will run on for a while.
        spread = max(0.05, self.ratios[-1] - self.ratios[0])
        return 0.25 * spread + 0.1 * ran, spread + 0.5 * ran


class ServiceModel:
    """The measured service of one task."""

    def __init__(self, *, batch_max: int = 1, concurrency: int = 1) -> None:
        self.batch_max = batch_max
        self.concurrency = concurrency
        self.times = RunTimes()
        self._fit = ServiceFit()
        self._samples: deque[tuple[int, float, int]] = deque(maxlen=SAMPLES_MAX)
        self.latest: Facts | None = None  # as `facts` returned it last
        self._skip = 0
        self._unread = 0
        self._ranks: deque[float] = deque(maxlen=REGIME_RUNS)

    def observe(self, items: int, took_s: float, size_b: int = 0) -> None:
        """Take in a run of `items` (at least 1) that took `took_s`; `size_b` is all their inputs."""
        single = self.batch_max == 1  # one after another, or beside each other: either way one item's time
        own_s = took_s / items if single and self.concurrency == 1 else took_s
        self.times.add(own_s)
        if self._skip:
            self._skip -= 1
            return
        if took_s < BRIEF_S and len(self._samples) == SAMPLES_MAX:
            self._skip = min(SKIP_MAX, int(BRIEF_S / max(took_s, 1e-6)))
        cls = class_of(size_b // items)
        if single:
            took_s, items = own_s, 1
        self._samples.append((items, took_s, cls))
        expected_s = self._fit.run_s(items)
        self._unread += 1
        if expected_s and self._fit.runs >= FEW:
            self._fit.observe(items, min(took_s, CLIP * expected_s))
            self._note_regime(took_s / expected_s)
        else:
            self._fit.observe(items, took_s)
            self.facts()

    def facts(self) -> Facts | None:
        """Return what is known, computed anew when an eighth of it is new; None before the first run."""
        if self._unread and (self.latest is None or self._unread * NEW_SHARE > len(self._samples)):
            self.latest = self._compute()
            self._unread = 0
        return self.latest

    def run_s(self, items: int) -> float:
        """Return the expected seconds of a run of `items`, 0 before the first run."""
        return self._fit.run_s(items) or 0.0

    def mean_s(self) -> float | None:
        """Return the expected seconds of a run of the usual size, None before the first run."""
        facts = self.facts()
        return None if facts is None else self.run_s(max(1, round(facts.size)))

    def _note_regime(self, ratio: float) -> None:
        facts = self.facts()
        assert facts is not None
        known = facts.ratios
        low = bisect_left(known, ratio * (1 - SAME))
        high = bisect_right(known, ratio * (1 + SAME))
        ranks = self._ranks
        ranks.append((low + high) / (2 * len(known)))
        if len(ranks) == REGIME_RUNS and abs(sum(ranks) / REGIME_RUNS - 0.5) > REGIME_SHIFT:
            self._forget()

    def _forget(self) -> None:
        newest = list(self._samples)[-REGIME_RUNS:]
        self._samples.clear()
        self._samples.extend(newest)
        self._fit = ServiceFit()
        for items, took_s, _ in newest:
            self._fit.observe(items, took_s)
        self._ranks.clear()
        self.latest = None
        self._unread = 1

    def _compute(self) -> Facts:
        samples, run_s = self._samples, self._fit.run_s
        raw = [took_s / max(run_s(items) or 0.0, 1e-9) for items, took_s, _ in samples]
        count = len(raw)
        mean = max(sum(raw) / count, 1e-9)
        variance = sum((one - mean) ** 2 for one in raw) / count / (mean * mean)
        classes = self._classes(raw, mean)
        if classes:
            ratios = sorted(
                one / classes.get(sample[2], 1.0) for one, sample in zip(raw, samples, strict=True)
            )
        else:
            ratios = sorted(raw)
        doubt = max(variance / count, _between(raw, mean), DOUBT_FLOOR**2)
        if count < FEW:
            variance = max(variance, FEW_VARIANCE / count)
            doubt = max(doubt, FEW_VARIANCE / count)
        full_s = (run_s(self.batch_max) or 0.0) * mean
        sizes = list(samples)[-16:]
        size = sum(items for items, _, _ in sizes) / len(sizes)
        return Facts(
            runs=count,
            single_s=run_s(1) or 0.0,
            full_s=full_s,
            item_s=full_s / self.batch_max,
            variance=variance,
            doubt=doubt,
            ratios=ratios,
            ratio50=quantile(ratios, 0.5),
            ratio90=quantile(ratios, 0.9),
            size=size,
            classes=classes,
        )

    def _classes(self, raw: list[float], mean: float) -> dict[int, float]:
        """Return the factor of each size class; empty when all runs are of one class."""
        sums: dict[int, list[float]] = {}
        for ratio, sample in zip(raw, self._samples, strict=True):
            entry = sums.setdefault(sample[2], [0.0, 0.0])
            entry[0] += 1
            entry[1] += ratio
        if len(sums) < 2:
            return {}
        return {
            cls: (total + CLASS_PRIOR * mean) / ((count + CLASS_PRIOR) * mean)
            for cls, (count, total) in sums.items()
        }


class Services:
    """The measured service of one task at each of its levels; `now` is that of the level where it runs."""

    def __init__(self, *, batch_max: int = 1, concurrency: int = 1) -> None:
        self._batch_max = batch_max
        self._concurrency = concurrency
        self._by_level: dict[int, ServiceModel] = {}
        self._level = 0
        self.now = self._of(0)

    def observe(self, level: int, items: int, took_s: float, size_b: int = 0) -> ServiceModel:
        """Take in a run at a level; return what is known of the level of now."""
        self._of(level).observe(items, took_s, size_b)
        return self.now if level == 0 else self.move(self._level)

    def move(self, level: int) -> ServiceModel:
        """Another level from now on; of one that never ran the next better one is believed until it has."""
        self._level = level
        known = [one for one in sorted(self._by_level) if one <= level]
        self.now = self._by_level[known[-1]]
        return self.now

    def _of(self, level: int) -> ServiceModel:
        service = self._by_level.get(level)
        if service is None:
            service = ServiceModel(batch_max=self._batch_max, concurrency=self._concurrency)
            self._by_level[level] = service
        return service


def class_of(size_b: int) -> int:
    """Return the size class of one input: each is four times the one before."""
    return min(CLASSES_MAX - 1, size_b.bit_length() >> 1)


def quantile(ordered: list[float], share: float) -> float:
    """Return the quantile of sorted values, between two of them by proportion."""
    at = share * (len(ordered) - 1)
    low = int(at)
    if low + 1 >= len(ordered):
        return ordered[-1]
    return ordered[low] + (ordered[low + 1] - ordered[low]) * (at - low)


def _between(raw: list[float], mean: float) -> float:
    """Return the relative variance of block means: alike jobs come together, and their doubt stays."""
    blocks = [
        sum(raw[at : at + BLOCK_RUNS]) / BLOCK_RUNS for at in range(0, len(raw) - BLOCK_RUNS + 1, BLOCK_RUNS)
    ]
    if len(blocks) < 3:
        return 0.0
    middle = sum(blocks) / len(blocks)
    return sum((one - middle) ** 2 for one in blocks) / len(blocks) / (mean * mean)
