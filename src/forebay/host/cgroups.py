"""The control groups that a process is in, version 1 and 2, and what their files say."""

from pathlib import Path
from typing import Final

from forebay.core.throttling import cpus_of

ROOT: Final = Path("/")
GROUPS_MAX: Final = 64  # of one process, one inside the other


def groups_of(controller: str, *, root: Path = ROOT, pid: int | None = None) -> list[Path]:
    """Return the directories whose limits of a controller ("cpu", "memory") hold for a process, this one by
    default: its own group first, then those above it.

    Some of them need not exist: inside a container the path of a group often names a place that cannot be
    seen, and the top is the container's own. `root` holds `proc` and `sys`, for tests.
    """
    top = root / "sys/fs/cgroup"
    found: list[Path] = []
    for base, path in _places(controller, top, root / "proc" / ("self" if pid is None else str(pid))):
        inner = base / path.lstrip("/")
        while base in inner.parents and len(found) < GROUPS_MAX:
            found.append(inner)
            inner = inner.parent
    tops = [top / controller, top / "cpu,cpuacct", top / "unified", top]
    return [*found, *(tops if controller.startswith("cpu") else [tops[0], *tops[2:]])]


def _places(controller: str, top: Path, process: Path) -> list[tuple[Path, str]]:
    """Return (base, path) of each hierarchy that has the controller; version 1 goes before version 2."""
    old: list[tuple[Path, str]] = []
    new: list[tuple[Path, str]] = []
    for line in text_of(process / "cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers == "":
            new += [(top, path), (top / "unified", path)]
        elif controller in controllers.split(","):
            old += [(base, path) for base in dict.fromkeys((top / controllers, top / controller))]
    return old + new


def quota_of(group: Path) -> float | None:
    """Return the CPUs that a group allows, None when it sets no limit."""
    whole = text_of(group / "cpu.max")
    if whole:
        return cpus_of(whole)
    return cpus_of(text_of(group / "cpu.cfs_quota_us"), text_of(group / "cpu.cfs_period_us"))


def tightest_quota(*, root: Path = ROOT, pid: int | None = None) -> tuple[float, Path] | None:
    """Return the CPUs of the tightest quota that holds for a process and its group, None without one."""
    quotas = [(quota_of(group), group) for group in groups_of("cpu", root=root, pid=pid)]
    return min([(cpus, group) for cpus, group in quotas if cpus is not None], default=None)


def text_of(path: Path) -> str:
    """Return what a file of the kernel says, nothing where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def count_in(path: Path, name: str) -> int | None:
    """Return the number beside a name in a file of "name number" lines, None where there is none."""
    for line in text_of(path).splitlines():
        found, _, value = line.partition(" ")
        if found == name and value.strip().isdecimal():
            return int(value)
    return None
