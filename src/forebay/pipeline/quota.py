"""Quota: how much a CPU quota took from this process since it was first looked at."""

from pathlib import Path
from typing import NamedTuple

from forebay.core.throttling import CpuStat, stat_of
from forebay.host.cgroups import ROOT, text_of, tightest_quota


class Throttled(NamedTuple):
    """What a quota did so far."""

    cpus: float
    stat: CpuStat


class CpuQuota:
    """The tightest CPU quota that this process is under. `root` holds `proc` and `sys`, for tests."""

    def __init__(self, root: Path = ROOT) -> None:
        self._tightest = tightest_quota(root=root)
        self._before = None if self._tightest is None else stat_of(text_of(self._tightest[1] / "cpu.stat"))

    def look(self) -> Throttled | None:
        """Return what it did since the start, None without a quota."""
        if self._tightest is None or self._before is None:
            return None
        cpus, group = self._tightest
        stat = stat_of(text_of(group / "cpu.stat"))
        return None if stat is None else Throttled(cpus, stat.since(self._before))
