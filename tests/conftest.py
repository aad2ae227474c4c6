"""What holds for every test: surroundings that do not depend on who runs them, and nothing left behind."""

import os
import threading
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

# How fast an example runs says something about the machine here, not about the code.
settings.register_profile(
    "forebay", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("forebay")

LEFT_WAIT_MAX_S = 30.0  # for a child or a thread that was told to go, on a machine that is busy
_SETTINGS = ("FOREBAY_", "QUEUE_MAXSIZE", "WORKER_CONCURRENCY", "CUDA_VISIBLE_DEVICES")


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    """Settings of the shell that runs the tests must not decide what they see."""
    for name in list(os.environ):
        if name.startswith(_SETTINGS):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """A test that leaves a process or a thread behind fails: the next one would meet it."""
    children_before, threads_before = children_now(), set(threading.enumerate())
    yield
    left = [child for pid in children_now() - children_before if (child := process_of(pid)) is not None]
    left = [child for child in left if "resource_tracker" not in name_of(child)]  # Python's own, and stays
    _, alive = psutil.wait_procs(left, timeout=LEFT_WAIT_MAX_S) if left else ([], [])
    names = [name_of(child) for child in alive]
    for child in alive:
        child.kill()
    assert not names, f"the test left processes behind: {names}"
    stray = [t for t in set(threading.enumerate()) - threads_before if not t.daemon]
    for thread in stray:
        thread.join(timeout=LEFT_WAIT_MAX_S)
    assert not [t for t in stray if t.is_alive()], f"the test left threads behind: {stray}"


def children_now():
    """Return the pids of this process's own children. From /proc, because it is asked twice a test."""
    return {int(pid) for task in Path("/proc/self/task").glob("*/children") for pid in texts(task).split()}


def texts(path):
    try:
        return path.read_text()
    except OSError:  # the thread has ended
        return ""


def process_of(pid):
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def name_of(process):
    try:
        return " ".join(process.cmdline())[:200] or process.name()
    except psutil.Error:
        return f"pid {process.pid}"
