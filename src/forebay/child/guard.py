"""Keep the process apart: it dies with its parent, leaves signals to it, and hides its own descriptors."""

import ctypes
import faulthandler
import os
import signal

_PR_SET_PDEATHSIG = 1
EXIT_ORPHAN = 113  # the parent was gone before we could tie our life to it


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies.

    A reader thread would see the closed socket as well, but not while user code holds the GIL.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(EXIT_ORPHAN)


def ignore_signals() -> None:
    """Leave SIGTERM and SIGINT to the parent, which decides when a child ends.

    Handlers and not SIG_IGN: programs started from a handler must not inherit the deafness.
    """
    signal.signal(signal.SIGTERM, _nothing)
    signal.signal(signal.SIGINT, _nothing)


def keep_from_grandchildren(fd: int) -> None:
    """Close this descriptor in every program that user code starts."""
    os.set_inheritable(fd, False)


def dump_crashes() -> None:
    """Write the Python stack to the captured log when the process dies in C code."""
    try:
        faulthandler.enable(file=os.dup(2))
    except OSError:
        pass


def end_group() -> None:
    """Kill this process and everything it started in its group, now."""
    os.killpg(0, signal.SIGKILL)


def _nothing(number: int, frame: object) -> None:
    """Do nothing."""
