"""Memory: how much a process may have, what is used of it, and what it could still get."""

import sys
from pathlib import Path
from typing import Final, NamedTuple

from forebay.host.cgroups import ROOT, count_in, groups_of, text_of

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - where frames lie; the files there have no name
_LIMITS: Final = (  # cgroup 2, cgroup 1: limit, usage, what of the usage the kernel can drop at once
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


class Limit(NamedTuple):
    """What holds for a process and others together."""

    limit_b: int
    used_b: int  # without what the kernel can drop at once: files that were read


def limits_of(*, root: Path = ROOT, pid: int | None = None) -> list[Limit]:
    """Return the limits of the groups a process is in. `root` holds `proc` and `sys`, for tests.

    Version 1 says "no limit" by a number beyond all memory.
    """
    found: list[Limit] = []
    for group in groups_of("memory", root=root, pid=pid):
        for limit_name, used_name, dropped in _LIMITS:
            limit, used = text_of(group / limit_name).strip(), text_of(group / used_name).strip()
            if limit.isdecimal() and used.isdecimal():
                kept = int(used) - (count_in(group / "memory.stat", dropped) or 0)
                found.append(Limit(int(limit), max(0, kept)))
    return found


def machine_memory_b(root: Path = ROOT) -> dict[str, int]:
    """Return what the kernel says of the machine's memory, by its names, such as MemTotal."""
    return {
        name.rstrip(":"): int(value) * 1024
        for name, value, *_ in (line.split() for line in text_of(root / "proc/meminfo").splitlines() if line)
        if value.isdecimal()
    }


def memory_free_b(root: Path = ROOT) -> int:
    """Return the bytes this process could still get: what the machine has, cut by its cgroups (1 or 2).

    What was read from files and can be dropped counts as free, swap does not.
    """
    left = [max(0, limit_b - used_b) for limit_b, used_b in limits_of(root=root)]
    available = machine_memory_b(root).get("MemAvailable")
    return min([*left, sys.maxsize if available is None else available])
