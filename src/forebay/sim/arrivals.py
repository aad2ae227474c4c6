"""When jobs arrive: Poisson, bursts, the curve of a day. Each returns sorted instants."""

import math

from forebay.sim.chance import Chance


def steady(rate_per_s: float, *, start: float, until: float) -> list[float]:
    """Return instants at equal distances."""
    return [start + i / rate_per_s for i in range(max(0, math.ceil((until - start) * rate_per_s)))]


def poisson(chance: Chance, rate_per_s: float, *, start: float, until: float) -> list[float]:
    """Return independent arrivals at a mean rate."""
    times: list[float] = []
    at = start + chance.exponential(1.0 / rate_per_s)
    while at < until:
        times.append(at)
        at += chance.exponential(1.0 / rate_per_s)
    return times


def bursts(
    chance: Chance, *, start: float, until: float, every_s: float, size: int, width_s: float
) -> list[float]:
    """Return bursts of `size` arrivals within `width_s`, on average one every `every_s`."""
    return sorted(
        at + chance.between(0.0, width_s)
        for at in poisson(chance, 1.0 / every_s, start=start, until=until)
        for _ in range(size)
    )


def day_curve(
    chance: Chance, *, low_per_s: float, high_per_s: float, day_s: float, start: float, until: float
) -> list[float]:
    """Return arrivals whose rate swings between low and high once in `day_s` (thinned Poisson)."""
    middle, swing = (low_per_s + high_per_s) / 2, (high_per_s - low_per_s) / 2
    return [
        at
        for at in poisson(chance, high_per_s, start=start, until=until)
        if chance.random() * high_per_s <= middle - swing * math.cos(2 * math.pi * (at - start) / day_s)
    ]
