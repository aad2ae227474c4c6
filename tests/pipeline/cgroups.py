"""A real CPU quota for a test, where the machine lets it make one."""

import contextlib
import os
from pathlib import Path

import pytest

TOP = Path("/sys/fs/cgroup")
PERIOD_US = 100_000


@contextlib.contextmanager
def cpu_group(cpus):
    """Yield the file into which a process writes 0 to have so many CPUs; skips, with the reason, where no
    group can be made."""
    first = TOP / "cpu" if (TOP / "cpu" / "cpu.cfs_quota_us").exists() or (TOP / "cpu").is_dir() else TOP
    group = first / f"forebay-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        quota = int(cpus * PERIOD_US)
        try:
            if (group / "cpu.max").exists():
                (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
        except OSError as error:
            pytest.skip(f"no CPU quota can be set here: {error}")
        yield group / "cgroup.procs"
    finally:
        group.rmdir()
