"""Throttling: what a CPU quota takes from processes, out of the counters and limits of their cgroup."""

from typing import NamedTuple

_UNITS_PER_S = {"throttled_usec": 1e6, "throttled_time": 1e9}  # cgroup 2, cgroup 1


class CpuStat(NamedTuple):
    """The counters of a cgroup with a quota: periods that ran, those that were cut, for how long in all."""

    periods: int
    throttled: int
    throttled_s: float

    def since(self, before: "CpuStat") -> "CpuStat":
        """Return what was added."""
        return CpuStat(
            self.periods - before.periods,
            self.throttled - before.throttled,
            self.throttled_s - before.throttled_s,
        )

    @property
    def ratio(self) -> float:
        """The share of the periods that were cut, 0 when none ran."""
        return self.throttled / self.periods if self.periods > 0 else 0.0


def stat_of(text: str) -> CpuStat | None:
    """Return the counters of a `cpu.stat` of cgroup 1 or 2, None when it has none of a quota."""
    found = dict(line.split(maxsplit=1) for line in text.splitlines() if len(line.split()) == 2)
    unit = next((name for name in _UNITS_PER_S if name in found), None)
    try:
        periods, throttled = int(found["nr_periods"]), int(found["nr_throttled"])
        throttled_s = 0.0 if unit is None else int(found[unit]) / _UNITS_PER_S[unit]
    except (KeyError, ValueError):
        return None
    return CpuStat(periods, throttled, throttled_s)


def cpus_of(quota: str, period: str = "") -> float | None:
    """Return how many CPUs a quota is: `cpu.max` of cgroup 2 ("200000 100000"), or quota and period of
    cgroup 1 in microseconds. None when there is no limit."""
    words = f"{quota} {period}".split()
    if len(words) != 2 or not (words[0].isdecimal() and words[1].isdecimal()):
        return None  # "max", "-1", or nothing that we know
    return int(words[0]) / int(words[1]) if int(words[0]) and int(words[1]) else None
