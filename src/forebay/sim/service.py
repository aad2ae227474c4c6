"""Service: how long a run of n items takes, `fixed + n * each`, with spread, a tail and regimes."""

import math
from dataclasses import dataclass

from forebay.sim.chance import Chance


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A model's speed. `spread` is the standard deviation of the logarithm: 0 is exact, 0.3 is lively.

    `tail` is the exponent of a Pareto law in place of that: 2.5 has a mean and hardly a variance. `regimes`
    are (instant, factor) pairs: from each instant on everything takes that many times as long.
    """

    fixed_s: float = 0.0
    each_s: float = 0.01
    spread: float = 0.0
    tail: float = 0.0
    regimes: tuple[tuple[float, float], ...] = ()

    def run_s(self, items: int, chance: Chance, now: float = 0.0) -> float:
        """Return the seconds of one run; the mean is `fixed + n * each` whatever the spread and the tail."""
        mean = self.fixed_s + items * self.each_s
        for since, factor in self.regimes:
            if now >= since:
                mean = (self.fixed_s + items * self.each_s) * factor
        if self.tail:
            drawn: float = (1.0 - chance.random()) ** (-1.0 / self.tail)
            return mean * (1.0 - 1.0 / self.tail) * drawn
        if not self.spread:
            return mean
        return mean * math.exp(self.spread * chance.normal() - self.spread * self.spread / 2)
