"""What this machine allows us: CPUs by cgroup quota and affinity, GPUs, and the defaults that follow."""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from forebay.errors import ConfigError

WORKERS_MAX: Final = 1024
_ROOT: Final = Path("/")


def cpus_allowed(*, root: Path = _ROOT, affinity: int | None = None) -> float:
    """Return how many CPUs this process may use: its affinity, cut by the quotas of its cgroup and of the
    groups above it (version 1 or 2). May be a fraction, never below 0.01.

    `root` holds `proc` and `sys`; `affinity` stands for the CPUs of the affinity mask. Both for tests.
    """
    count = len(os.sched_getaffinity(0)) if affinity is None else affinity
    quotas = [_quota(group) for group in _cpu_groups(root)]
    return max(0.01, min([float(count), *(quota for quota in quotas if quota is not None)]))


def _cpu_groups(root: Path) -> list[Path]:
    """Return the directories whose quota holds for us: our own group and all above it."""
    top = root / "sys/fs/cgroup"
    groups: list[Path] = []
    for controllers, path in _memberships(root):
        if controllers == "":
            bases = [top, top / "unified"]
        elif "cpu" in controllers.split(","):
            bases = [top / "cpu", top / "cpu,cpuacct", top / controllers]
        else:
            continue
        for base in bases:
            # Inside a container the path often names a place that cannot be seen; the base then is ours.
            inner = base / path.lstrip("/")
            while inner != base.parent:
                groups.append(inner)
                inner = inner.parent
    return groups


def _memberships(root: Path) -> list[tuple[str, str]]:
    """Return (controllers, path) of each hierarchy; version 2 has no controllers here."""
    lines = _text(root / "proc/self/cgroup").splitlines()
    parts = [line.split(":", 2) for line in lines]
    return [(part[1], part[2]) for part in parts if len(part) == 3]


def _quota(group: Path) -> float | None:
    """Return the CPUs this group allows, None when it sets no limit."""
    unified = _text(group / "cpu.max").split()
    if len(unified) == 2:
        quota, period = unified
    else:
        quota = _text(group / "cpu.cfs_quota_us").strip()
        period = _text(group / "cpu.cfs_period_us").strip()
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:  # "max", "-1" or no file
        return None
    return int(quota) / int(period)


def gpus_present(env: Mapping[str, str], *, root: Path = _ROOT) -> int:
    """Return how many NVIDIA GPUs this process may use.

    CUDA_VISIBLE_DEVICES wins over what is there: up to its first entry that is -1, as CUDA reads it.
    Looks for device files; starts no program and loads no driver.
    """
    there = _gpu_files(root)
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not there:
        return there
    names: list[str] = []
    for name in (part.strip() for part in visible.split(",")):
        if not name or name.startswith("-") or (name.isdecimal() and int(name) >= there):
            break
        names.append(name)
    return len(names)


def _gpu_files(root: Path) -> int:
    listed = _names(root / "proc/driver/nvidia/gpus")
    nodes = [name for name in _names(root / "dev") if re.fullmatch(r"nvidia\d+", name)]
    # A container given one card of eight sees eight in /proc and one device file.
    return len(nodes) if nodes else len(listed)


def default_workers(env: Mapping[str, str], *, root: Path = _ROOT, affinity: int | None = None) -> int:
    """Return how many replicas a class task gets: WORKER_CONCURRENCY, else GPUs, else CPUs allowed.

    Raises ConfigError when WORKER_CONCURRENCY is no whole number from 1 to WORKERS_MAX.
    """
    wanted = env.get("WORKER_CONCURRENCY", "").strip()
    if wanted:
        if not (wanted.isascii() and wanted.isdecimal() and 1 <= int(wanted[:9]) <= WORKERS_MAX):
            raise ConfigError(
                f"WORKER_CONCURRENCY must be a whole number from 1 to {WORKERS_MAX}, not {wanted[:40]!r}"
            )
        return int(wanted)
    gpus = gpus_present(env, root=root)
    return gpus or max(1, math.floor(cpus_allowed(root=root, affinity=affinity)))


def thread_cap(cpus: float, workers: int) -> int:
    """Return how many threads the maths libraries of each of `workers` children may use, at least 1."""
    return max(1, math.floor(cpus / max(1, workers)))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _names(path: Path) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
