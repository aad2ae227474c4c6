"""Quota: how much a CPU quota took from this process since it was first looked at."""

from pathlib import Path
from typing import Final, NamedTuple

from forebay.core.throttling import CpuStat, cpus_of, stat_of

_ROOT: Final = Path("/")
GROUPS_MAX: Final = 64  # of one process, one inside the other


class Throttled(NamedTuple):
    """What a quota did so far."""

    cpus: float
    stat: CpuStat


class CpuQuota:
    """The tightest CPU quota that this process is under. `root` holds `proc` and `sys`, for tests."""

    def __init__(self, root: Path = _ROOT) -> None:
        found = [(cpus, group) for group in groups_of(root) if (cpus := _cpus(group)) is not None]
        self._tightest = min(found, default=None)
        self._before = None if self._tightest is None else stat_of(_text(self._tightest[1] / "cpu.stat"))

    def look(self) -> Throttled | None:
        """Return what it did since the start, None without a quota."""
        if self._tightest is None or self._before is None:
            return None
        cpus, group = self._tightest
        stat = stat_of(_text(group / "cpu.stat"))
        return None if stat is None else Throttled(cpus, stat.since(self._before))


def groups_of(root: Path) -> list[Path]:
    """Return the directories of the CPU controller that this process is in, of cgroup 1 or 2."""
    top = root / "sys/fs/cgroup"
    found = [top, top / "cpu", top / "cpu,cpuacct"]
    for line in _text(root / "proc/self/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers == "":
            base = top
        elif "cpu" in controllers.split(","):
            base = top / controllers
        else:
            continue
        inner = base / path.lstrip("/")
        while base in inner.parents and len(found) < GROUPS_MAX:
            found.append(inner)
            inner = inner.parent
    return found


def _cpus(group: Path) -> float | None:
    whole = _text(group / "cpu.max")
    if whole:
        return cpus_of(whole)
    return cpus_of(_text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us"))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
