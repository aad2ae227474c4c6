"""What this machine allows us: CPUs by cgroup quota and affinity, GPUs, and the defaults that follow."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from forebay.errors import ConfigError
from forebay.host.cgroups import ROOT, tightest_quota
from forebay.host.gpus import gpu_files

WORKERS_MAX: Final = 1024


def cpus_allowed(*, root: Path = ROOT, affinity: int | None = None) -> float:
    """Return how many CPUs this process may use: its affinity, cut by the quotas of its cgroup and of the
    groups above it (version 1 or 2). May be a fraction, never below 0.01.

    `root` holds `proc` and `sys`; `affinity` stands for the CPUs of the affinity mask. Both for tests.
    """
    count = len(os.sched_getaffinity(0)) if affinity is None else affinity
    tightest = tightest_quota(root=root)
    return max(0.01, float(count) if tightest is None else min(float(count), tightest[0]))


def gpus_present(env: Mapping[str, str], *, root: Path = ROOT) -> int:
    """Return how many NVIDIA GPUs this process may use.

    CUDA_VISIBLE_DEVICES wins over what is there: up to its first entry that is -1, as CUDA reads it.
    Looks for device files; starts no program and loads no driver.
    """
    there = gpu_files(root)
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not there:
        return there
    names: list[str] = []
    for name in (part.strip() for part in visible.split(",")):
        if not name or name.startswith("-") or (name.isdecimal() and int(name) >= there):
            break
        names.append(name)
    return len(names)


def default_workers(env: Mapping[str, str], *, root: Path = ROOT, affinity: int | None = None) -> int:
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
