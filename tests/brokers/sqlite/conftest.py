"""A small real file system, so that full and read-only are what they are outside of tests."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class SmallDisk:
    """A mounted tmpfs."""

    path: Path

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.path)], check=True, timeout=30)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A file system of 6 MB; needs the right to mount."""
    path = tmp_path / "disk"
    path.mkdir(mode=0o700)
    mounted = os.geteuid() == 0 and shutil.which("mount") is not None
    if mounted:
        command = ["mount", "-t", "tmpfs", "-o", "size=6m,mode=0700", "none", str(path)]
        mounted = subprocess.run(command, check=False, timeout=30, capture_output=True).returncode == 0
    if not mounted:
        assert os.environ.get("CI") != "true", "CI must be able to mount a small file system"
        pytest.skip("needs the right to mount a small file system")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True, timeout=30)
