"""Keep the process apart: it dies with its parent, leaves signals to it, and hides its own descriptors."""

import ctypes
import faulthandler
import os
import signal
import threading

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

    Handlers and not SIG_IGN: programs started from a handler must not inherit the deafness. Nor must what it
    forks: a pool of multiprocessing ends its workers by SIGTERM and waits for them. One that comes before a
    fork has its own handlers back waits until then, or it would be lost.
    """
    own = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    masks = threading.local()

    def before() -> None:
        masks.old = signal.pthread_sigmask(signal.SIG_BLOCK, own)

    def after() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.old)

    def after_in_child() -> None:
        for number, handler in own.items():
            signal.signal(number, handler)
        after()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after_in_child)
    for number in own:
        signal.signal(number, _nothing)


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
