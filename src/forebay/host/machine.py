"""One reading of a whole machine."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from forebay.core.doctor.readings import Disk, Host
from forebay.host.cgroups import ROOT, text_of
from forebay.host.gpus import read_gpus
from forebay.host.memory import SHARED_MEMORY
from forebay.host.processors import Processors, memory_of

THREAD_CAPS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
CHILDREN_MAX: Final = 4096


def read_host(
    *,
    window_s: float,
    watch: Callable[[float], float],
    data: Path,
    pid: int | None = None,
    root: Path = ROOT,
) -> Host:
    """Return what a machine says as a process sees it, this one or `pid`, watched for `window_s` seconds.

    `watch` waits for so long and returns how long it was; `data` is the directory of the store. Raises
    ProcessLookupError when there is no such process, PermissionError when it may not be looked at.
    """
    processors = Processors(pid, root)
    before = processors.look()
    passed_s = watch(window_s)
    cpu = processors.between(before, processors.look(), passed_s)
    gpus, unseen = read_gpus(root)
    children = [] if pid is None else children_of(pid, root)
    return Host(
        cpu,
        memory_of(pid, root),
        tuple(
            disk
            for name, path in (("store", data), ("frames", Path(SHARED_MEMORY)))
            for disk in disk_under(name, path)
        ),
        gpus,
        unseen,
        () if pid is None else thread_caps(environment_of((children or [pid])[0], root)),
        max(1, len(children)),
        files_max(pid, root),
        text_of(root / "sys/devices/virtual/dmi/id/product_name").strip()[:80],
    )


def thread_caps(environment: Mapping[str, str]) -> tuple[tuple[str, int | None], ...]:
    """Return how many threads each maths library may use by its variable, None where nothing bounds it."""
    said = ((name, environment.get(name, "").strip()) for name in THREAD_CAPS)
    return tuple((name, int(text) if re.fullmatch(r"[1-9]\d{0,5}", text) else None) for name, text in said)


def environment_of(pid: int, root: Path = ROOT) -> dict[str, str]:
    """Return the variables a process was started with, none where they cannot be read."""
    pairs = (entry.partition("=") for entry in text_of(root / f"proc/{pid}/environ").split("\0"))
    return {name: value for name, sign, value in pairs if sign}


def children_of(pid: int, root: Path = ROOT) -> list[int]:
    """Return the processes that a process started and that still run."""
    text = text_of(root / f"proc/{pid}/task/{pid}/children")
    return [int(word) for word in text.split()[:CHILDREN_MAX] if word.isdecimal()]


def files_max(pid: int | None = None, root: Path = ROOT) -> int | None:
    """Return how many files and connections a process may have open, None when it is not told."""
    text = text_of(root / "proc" / ("self" if pid is None else str(pid)) / "limits")
    found = re.search(r"^Max open files\s+(\d{1,12})\s", text, re.MULTILINE)
    return int(found[1]) if found else None


def disk_under(name: str, path: Path) -> list[Disk]:
    """Return the file system under a path, or under the nearest directory above it that exists."""
    place = path.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        found = os.statvfs(place)
    except OSError:
        return []
    size_b, free_b = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    return [Disk(name, str(path), size_b, free_b, found.f_files, found.f_favail)]
