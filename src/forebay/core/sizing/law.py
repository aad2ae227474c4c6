"""ServiceLaw: how long a run of n items takes, `fixed + n × each`, and what follows for a rate."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLaw:
    """The speed of one replica. 20 ms + 2 ms an item in batches of 16: 307.7 items a second."""

    fixed_s: float = 0.0
    each_s: float = 0.0
    batch_max: int = 1
    at_once: int = 1  # calls that one replica runs beside each other (async handlers)

    def __post_init__(self) -> None:
        assert self.fixed_s >= 0 and self.each_s >= 0 and self.fixed_s + self.each_s > 0
        assert self.batch_max >= 1 and self.at_once >= 1

    def run_s(self, items: float) -> float:
        """Return the seconds of one run."""
        return self.fixed_s + items * self.each_s

    @property
    def full_s(self) -> float:
        """Seconds of a full run."""
        return self.run_s(self.batch_max)

    @property
    def rate_per_s(self) -> float:
        """Items a second that one replica can do: batch_max / run(batch_max), times the calls at once."""
        return self.batch_max * self.at_once / self.full_s

    @property
    def slots(self) -> int:
        """Items that one replica can have in service."""
        return self.batch_max * self.at_once

    def usual_batch(self, rate_per_s: float) -> float:
        """Return the items of a run when one replica gets `rate_per_s` and never waits for company.

        What comes during a run is the next run: n = λ (fixed + n each), so n = λ fixed / (1 − λ each),
        between 1 and `batch_max`.
        """
        share = rate_per_s / self.at_once
        spare = 1.0 - share * self.each_s
        most = float(self.batch_max)
        return most if spare <= 0 else min(most, max(1.0, share * self.fixed_s / spare))


def law_of_rate(rate_per_s: float) -> ServiceLaw:
    """Return the law of a replica of which only the rate is known: one item after another."""
    assert math.isfinite(rate_per_s) and rate_per_s > 0
    return ServiceLaw(each_s=1.0 / rate_per_s)
