"""Processors and memory of a group of processes, read from the kernel's files."""

import os
from pathlib import Path
from typing import NamedTuple

from forebay.core.doctor.readings import Cpu, Memory
from forebay.core.throttling import CpuStat, stat_of
from forebay.host.cgroups import ROOT, count_in, groups_of, text_of, tightest_quota
from forebay.host.memory import limits_of, machine_memory_b

_STEAL = 7  # its place in the first line of /proc/stat, after the name


class Ticks(NamedTuple):
    """Counters at one instant; two of them make a reading."""

    stat: CpuStat | None
    used_s: float | None
    stolen: int
    passed: int


class Processors:
    """The processors that a process may use, this one by default. `root` holds `proc` and `sys`."""

    def __init__(self, pid: int | None = None, root: Path = ROOT) -> None:
        self._root = root
        tightest = tightest_quota(root=root, pid=pid)
        self.quota: float | None = None if tightest is None else tightest[0]
        self._group: Path | None = None if tightest is None else tightest[1]
        # Version 1 may count processor time in a hierarchy of its own, where a process is elsewhere.
        counted = groups_of("cpuacct", root=root, pid=pid)
        if self._group is None:
            self._places = [*counted, *groups_of("cpu", root=root, pid=pid)]
        else:
            same = _inside(self._group, root)
            self._places = [self._group, *(place for place in counted if _inside(place, root) == same)]
        self.count = len(os.sched_getaffinity(pid or 0))

    def look(self) -> Ticks:
        """Return the counters as they are now."""
        stat = None if self._group is None else stat_of(text_of(self._group / "cpu.stat"))
        words = text_of(self._root / "proc/stat").partition("\n")[0].split()[1:]
        ticks = [int(word) for word in words if word.isdecimal()]
        stolen = ticks[_STEAL] if len(ticks) > _STEAL else 0
        return Ticks(stat, self._used_s(), stolen, sum(ticks[: _STEAL + 1]))

    def _used_s(self) -> float | None:
        for place in self._places:
            of_two = count_in(place / "cpu.stat", "usage_usec")
            if of_two is not None:
                return of_two / 1e6
            of_one = text_of(place / "cpuacct.usage").strip()
            if of_one.isdecimal():
                return int(of_one) / 1e9
        return None

    def between(self, before: Ticks, after: Ticks, window_s: float) -> Cpu:
        """Return what happened within a window."""
        passed = after.passed - before.passed
        cut = None if before.stat is None or after.stat is None else after.stat.since(before.stat)
        known = before.used_s is not None and after.used_s is not None and window_s > 0
        used = ((after.used_s or 0.0) - (before.used_s or 0.0)) / window_s if known else None
        steal = (after.stolen - before.stolen) / passed if passed > 0 else None
        return Cpu(self.count, self.quota, cut, used, window_s, steal)


def _inside(group: Path, root: Path) -> tuple[str, ...]:
    """Return where a group is within its hierarchy of version 1."""
    return group.relative_to(root / "sys/fs/cgroup").parts[1:]


def memory_of(pid: int | None = None, root: Path = ROOT) -> Memory:
    """Return the tightest memory limit that holds for a process, and what is used under it."""
    machine = machine_memory_b(root)
    whole = machine.get("MemTotal")
    found = [tuple(one) for one in limits_of(root=root, pid=pid) if whole is None or one.limit_b < whole]
    if not found and whole is not None and "MemAvailable" in machine:
        found = [(whole, whole - machine["MemAvailable"])]
    limit_b, used_b = min(found, default=(None, None))
    return Memory(limit_b, used_b, oom_kills(groups_of("memory", root=root, pid=pid)))


def oom_kills(groups: list[Path]) -> int | None:
    """Return how many processes the kernel killed for the memory of a group, None where nothing counts it."""
    for group in groups:
        for name in ("memory.oom_control", "memory.events"):
            kills = count_in(group / name, "oom_kill")
            if kills is not None:
                return kills
    return None
