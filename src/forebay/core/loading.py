"""Loading: when the requests of a load are due, and what became of them as a report. Latency counts from the
instant a request was due, so that a server, or a generator, that lags hides nothing."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

REQUESTS_MAX: Final = 5_000_000
PROFILES: Final = ("steady", "poisson", "ramp", "spike", "burst")
SPIKE_TIMES: Final = 10.0  # the rate of a spike, beside that of the rest
QUANTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)
LAG_MAX_S: Final = 0.05  # p99 of how late requests left, beyond which the generator is the bottleneck
GAVE_UP, UNREACHED, CUT = 0, -1, -2  # in the place of a status


class Shape(NamedTuple):
    """A load: `rate_per_s` for `for_s`; `burst` requests at once each `every_s`, or once when that is 0."""

    profile: str
    rate_per_s: float = 0.0
    for_s: float = 0.0
    burst: int = 0
    every_s: float = 0.0


def schedule(shape: Shape, draw: Callable[[], float]) -> list[float]:
    """Return when requests are due, in seconds from the start, in order. Raises ValueError for too many."""
    expected = _expected(shape)
    if expected > REQUESTS_MAX:
        raise ValueError(f"{expected:,.0f} requests are more than {REQUESTS_MAX:,}")
    match shape.profile:
        case "burst":
            times = [0.0] if shape.every_s <= 0 else _steps(shape.every_s, shape.for_s)
            return [at for at in times for _ in range(shape.burst)]
        case "steady":
            return _steps(1.0 / shape.rate_per_s, shape.for_s)
        case "poisson":
            return list(_poisson(shape, draw, lambda _at: 1.0, 1.0))
        case "ramp":
            return list(_poisson(shape, draw, lambda at: at / shape.for_s, 1.0))
        case "spike":
            return list(_poisson(shape, draw, lambda at: _spike(at / shape.for_s), SPIKE_TIMES))
        case _:
            raise ValueError(f"{shape.profile!r} is none of {', '.join(PROFILES)}")


def _spike(share: float) -> float:
    """Return how many times the rate is at a share of the time: the middle tenth is the spike."""
    return SPIKE_TIMES if 0.45 <= share < 0.55 else 1.0


def _expected(shape: Shape) -> float:
    if shape.profile == "burst":
        return shape.burst * max(1.0, shape.for_s / shape.every_s if shape.every_s > 0 else 1.0)
    peak = SPIKE_TIMES if shape.profile == "spike" else 1.0
    return shape.rate_per_s * shape.for_s * peak


def _steps(gap_s: float, for_s: float) -> list[float]:
    return [number * gap_s for number in range(max(0, math.ceil(for_s / gap_s - 1e-9)))]


def _poisson(
    shape: Shape, draw: Callable[[], float], factor: Callable[[float], float], most: float
) -> Iterator[float]:
    """Yield independent arrivals whose rate is `factor` of time, thinned from the largest."""
    at = 0.0
    while True:
        at -= math.log(1.0 - draw()) / (shape.rate_per_s * most)
        if at >= shape.for_s:
            return
        if draw() * most < factor(at):
            yield at


class Shot(NamedTuple):
    """One request: when it was due, left and was answered, in seconds from the start, and its status."""

    due_s: float
    sent_s: float
    done_s: float
    status: int

    @property
    def latency_s(self) -> float:
        """From when it was due to its answer."""
        return self.done_s - self.due_s


class Report(NamedTuple):
    """What a load came to. `goodput_per_s` counts answers below 300 within the deadline."""

    due: int
    seconds: float
    offered_per_s: float
    answered: int
    good: int
    goodput_per_s: float
    by_status: dict[str, int]
    good_s: dict[str, float]  # quantiles of the latency of what was good
    refused_s: dict[str, float]  # and of refusals
    lag_s: float  # p99 of how late requests left

    @property
    def generator_lags(self) -> bool:
        """Whether the numbers are of the generator rather than of the server."""
        return self.lag_s > LAG_MAX_S


def report(shots: Sequence[Shot], *, deadline_s: float | None, for_s: float) -> Report:
    """Return what became of all; `for_s` is how long requests were due, at least."""
    good = [one for one in shots if _is_good(one, deadline_s)]
    refused = [one for one in shots if one.status in {429, 503}]
    seconds = max(for_s, max((one.done_s for one in good), default=0.0), 1e-9)
    return Report(
        due=len(shots),
        seconds=seconds,
        offered_per_s=len(shots) / max(for_s, 1e-9) if for_s > 0 else math.inf,
        answered=sum(one.status > 0 for one in shots),
        good=len(good),
        goodput_per_s=len(good) / seconds,
        by_status=dict(sorted(Counter(_named(one.status) for one in shots).items())),
        good_s=quantiles([one.latency_s for one in good]),
        refused_s=quantiles([one.latency_s for one in refused]),
        lag_s=quantile(sorted(one.sent_s - one.due_s for one in shots), 0.99),
    )


def _is_good(shot: Shot, deadline_s: float | None) -> bool:
    return 200 <= shot.status < 300 and (deadline_s is None or shot.latency_s <= deadline_s)


def _named(status: int) -> str:
    return {GAVE_UP: "gave up", UNREACHED: "not reached", CUT: "cut off"}.get(status, str(status))


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return the quantiles by their names, and the largest; nothing for no values."""
    if not values:
        return {}
    ordered = sorted(values)
    found = {f"p{share * 100:g}": quantile(ordered, share) for share in QUANTILES}
    return {**found, "max": ordered[-1]}


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value that this share does not exceed, 0 of none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
