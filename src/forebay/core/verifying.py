"""Targets against what was seen of metrics: the value of each, and whether it is met."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

GAUGES = ("max", "min", "mean", "last")  # of each series; the worst series counts
COUNTERS = ("increase", "per_s", "share")  # of all series together
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}  # of all series together
TAKES = (*GAUGES, *COUNTERS, *QUANTILES)

Labels = tuple[tuple[str, str], ...]
Series = Mapping[Labels, float]  # the value of each series at one instant


class Target(NamedTuple):
    """One promise: what is taken of a metric, or of requests sent for it, and its bounds."""

    name: str
    take: str
    metric: str = ""
    labels: Labels = ()
    of: str = ""  # for a share: the metric that counts all
    probe: str = ""  # in place of a metric: a task, and the time its answers take
    absent: float | None = None  # the value where no such series was ever seen; None: the target is not met
    least: float | None = None
    most: float | None = None
    below: float | None = None

    @property
    def wanted(self) -> str:
        """The bounds as text: "< 250", ">= 0.85 and <= 0.95"."""
        told = ((">=", self.least), ("<=", self.most), ("<", self.below))
        return " and ".join(f"{sign} {value:g}" for sign, value in told if value is not None)

    def holds(self, value: float) -> bool:
        """Return whether a value is within the bounds. What is no number is not."""
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
            and not math.isnan(value)
        )


class Verdict(NamedTuple):
    """What came of one target. `value` is None when nothing was seen that it speaks of."""

    target: Target
    value: float | None
    met: bool
    worst: str = ""  # the series that decided, where several were seen


class Look(NamedTuple):
    """What one look at the metrics brought for one target."""

    at: float
    series: Series
    of: Series = {}  # noqa: RUF012 - never written to


def judge(target: Target, looks: Sequence[Look]) -> Verdict:
    """Return the verdict on a target of a metric, from looks in the order of time.

    Gauges are judged series by series and the worst counts; counters and histograms are summed. A counter
    that falls began anew. Quantiles are interpolated within their bucket, as Prometheus does it, of what was
    counted between the first look and the last; the last bucket, which has no end, gives its beginning.
    """
    if not any(look.series for look in looks):
        return _verdict(target, target.absent)
    if target.take in GAUGES:
        return _worst(target, looks)
    if target.take in QUANTILES:
        return _verdict(target, _quantile(looks, QUANTILES[target.take]))
    grown = sum(increases([look.series for look in looks]).values())
    if target.take == "share":
        whole = sum(increases([look.of for look in looks]).values())
        return _verdict(target, grown / whole if whole > 0 else None)
    if target.take == "per_s":
        passed = looks[-1].at - looks[0].at
        return _verdict(target, grown / passed if passed > 0 else None)
    return _verdict(target, grown)


def judge_times(target: Target, times_s: Sequence[float]) -> Verdict:
    """Return the verdict on a target of a probe, from the time of each answer in seconds; one that was not
    good is `inf`."""
    if not times_s:
        return _verdict(target, None)
    ordered = sorted(times_s)
    if target.take in QUANTILES:
        place = max(0, math.ceil(QUANTILES[target.take] * len(ordered)) - 1)
        return _verdict(target, ordered[place])
    values = {"max": ordered[-1], "min": ordered[0], "mean": math.fsum(ordered) / len(ordered)}
    return _verdict(target, values.get(target.take, times_s[-1]))


def increases(looks: Iterable[Series]) -> dict[Labels, float]:
    """Return how far each counter grew. One that was not there at first is taken to have been 0 then, unless
    nothing was: what the first look of all saw is where counting begins."""
    grown: dict[Labels, float] = {}
    before: Series | None = None
    for series in looks:
        for labels, value in series.items():
            was = value if before is None else before.get(labels, 0.0)
            grown[labels] = grown.get(labels, 0.0) + (value - was if value >= was else value)
        before = series
    return grown


def quantile_of(buckets: Mapping[float, float], quantile: float) -> float | None:
    """Return a quantile of cumulative buckets by their upper ends; None when nothing was counted."""
    total = buckets.get(math.inf, 0.0)
    if total <= 0:
        return None
    rank, lower, below = quantile * total, 0.0, 0.0
    for upper in sorted(buckets):
        if buckets[upper] >= rank:
            if math.isinf(upper):
                return lower
            inside = buckets[upper] - below
            return lower + (upper - lower) * ((rank - below) / inside if inside > 0 else 1.0)
        lower, below = upper, buckets[upper]
    return lower


def _worst(target: Target, looks: Sequence[Look]) -> Verdict:
    seen: dict[Labels, list[float]] = {}
    for look in looks:
        for labels, value in look.series.items():
            seen.setdefault(labels, []).append(value)
    told = {labels: _taken(target.take, values) for labels, values in seen.items()}
    failing = [labels for labels, value in told.items() if not target.holds(value)]
    high = target.least is None
    labels = (max if high else min)(failing or list(told), key=lambda one: told[one])
    shown = ",".join(f"{name}={text}" for name, text in labels) if len(told) > 1 else ""
    return Verdict(target, told[labels], not failing, shown)


def _taken(take: str, values: Sequence[float]) -> float:
    if take == "max":
        return max(values)
    if take == "min":
        return min(values)
    return values[-1] if take == "last" else math.fsum(values) / len(values)


def _quantile(looks: Sequence[Look], quantile: float) -> float | None:
    buckets: dict[float, float] = {}
    for labels, count in increases([look.series for look in looks]).items():
        end = dict(labels).get("le", "")
        upper = math.inf if end == "+Inf" else float(end)
        buckets[upper] = buckets.get(upper, 0.0) + count
    return quantile_of(buckets, quantile)


def _verdict(target: Target, value: float | None) -> Verdict:
    return Verdict(target, value, value is not None and target.holds(value))
