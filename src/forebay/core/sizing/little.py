"""Little's law: what stands in a queue is what comes in a second times the seconds it stays."""

import math
from typing import NamedTuple


class Holding(NamedTuple):
    """How many items a queue holds, by both readings of W in L = λ × W (J. D. C. Little, 1961)."""

    waiting: float  # W is the wait alone: the items in line
    in_system: float  # W is wait and service: those that are being served too
    bound: int  # a bound for the line that a burst of the same rate does not hit at once


def holding(rate_per_s: float, wait_s: float, service_s: float = 0.0) -> Holding:
    """Return what a rate needs when nobody may wait longer than `wait_s`.

    60/s × 0.2 s = 12 in line, and a bound of 16; with 50 ms of service 15 in the system.
    The law holds for means whatever the arrivals look like; so at a peak rate it bounds the peak.
    """
    waiting = rate_per_s * wait_s
    return Holding(waiting, rate_per_s * (wait_s + service_s), bound_of(waiting))


def bound_of(items: float) -> int:
    """Return a bound for a line of so many items on average: L + √L, rounded up, at least 1.

    Independent arrivals within a window vary by the root of their mean (Poisson), so a bound of L itself
    would refuse in every second window. 12 gives 16.
    """
    return max(1, math.ceil(items + math.sqrt(items) - 1e-9))


def wait_at(items: float, rate_per_s: float) -> float:
    """Return how long the last of a line of `items` waits when `rate_per_s` are taken from it: items / rate.

    200 items are 50 ms at 4,000/s and 100 ms at 2,000/s. Infinity when nothing is taken.
    """
    if items <= 0:
        return 0.0
    return items / rate_per_s if rate_per_s > 0 else math.inf
