"""Saturation: the gate of an upstream, by a number that the server behind it says of itself."""

import math
import re
from typing import Final

from forebay.core.saturation import OF, SaturationPolicy
from forebay.declare.options import Reader, refuse

METRIC_LENGTH_MAX: Final = 1_000  # characters, with its labels
EVERY_LEAST_S: Final = 0.1
EVERY_MOST_S: Final = 60.0
_METRIC = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?", re.ASCII | re.DOTALL)
_LABEL = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\\n]|\\[\\"n])*)"\s*(?:,|$)', re.ASCII)
_ESCAPED: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class Saturation:
    """The `gate` of an upstream: once `metric` is `close_at` or more no call begins until it is `open_at` or
    less.

    `metric` is a gauge on a page in the text format of Prometheus, with labels where only some series count:
    `vllm:num_requests_waiting{model_name="m"}`. Of several series the largest counts, or their sum with
    `of="sum"`. The page is at `url`; not given, it is `/metrics` where the upstream is. It is looked at once
    in `every` (100 ms to 1 min) while there is work. Without a value for 10 s the gate stands open.
    Not promised: that the server is never given more than `close_at`; calls begin between two looks.
    Raises AppError with one sentence that names the argument, its rule and the value.
    """

    def __init__(
        self,
        metric: str,
        *,
        close_at: float,
        open_at: float,
        url: str | None = None,
        every: float | str = "1s",
        of: str = "max",
    ) -> None:
        read = Reader("saturation")
        self.metric, self.labels = _metric(read, metric)
        read = Reader(f"saturation {self.metric}")
        most = _number(read, "close_at", close_at, "a number above 0")
        if most <= 0:
            raise refuse(read.where, "close_at", "a number above 0", close_at)
        rule = f"a number from 0 to less than close_at ({most:g})"
        least = _number(read, "open_at", open_at, rule)
        if not 0 <= least < most:
            raise refuse(read.where, "open_at", rule, open_at)
        every_s = read.seconds("every", every)
        if not EVERY_LEAST_S <= every_s <= EVERY_MOST_S:
            raise refuse(read.where, "every", "a duration from 100ms to 1m", every)
        self.policy = SaturationPolicy(close_at=most, open_at=least, every_s=every_s)
        self.url = None if url is None else read.url("url", url)
        self.of = read.choice("of", of, OF)


def _number(read: Reader, argument: str, value: object, rule: str) -> float:
    """Return a finite number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise refuse(read.where, argument, rule, value)


def _metric(read: Reader, value: object) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the name and the labels."""
    rule = 'the name of a metric, with labels or without, such as queued{model="m"}'
    text = value.strip() if isinstance(value, str) and len(value) <= METRIC_LENGTH_MAX else ""
    found = _METRIC.fullmatch(text)
    if found is None:
        raise refuse(read.where, "metric", rule, value)
    labels: dict[str, str] = {}
    rest = (found[2] or "").strip()
    while rest:
        label = _LABEL.match(rest)
        if label is None or label[1] in labels:
            raise refuse(read.where, "metric", rule, value)
        labels[label[1]] = re.sub(r'\\[\\"n]', lambda match: _ESCAPED[match[0]], label[2])
        rest = rest[label.end() :]
    return found[1], tuple(labels.items())
