"""Seats: the rows in which each process counts what it did, and the lock under which those of the dead are
given back."""

import contextlib
import fcntl
import os
import threading
from collections.abc import Generator
from typing import Final

from forebay.core.slots import slots_of
from forebay.errors import UnsupportedError
from forebay.streams.machine import is_hidden, started_at
from forebay.streams.slab import OPS, PID, SEATS_MAX, STARTED, STATE, Slab

CLAIM_WAIT_MAX_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.001


class AuditLock:
    """One auditor at a time, in all processes. The kernel frees it when its holder dies."""

    def __init__(self, slab: Slab) -> None:
        self._slab_fd = slab.place.fd
        self._fd = self._reopen()
        self._threads = threading.Lock()

    def _reopen(self) -> int:
        # A description of our own: the lock belongs to it, and who inherits descriptors must not share it.
        return os.open(f"/proc/self/fd/{self._slab_fd}", os.O_RDWR | os.O_CLOEXEC)

    @contextlib.contextmanager
    def held(self, wait_max_s: float = 0.0) -> Generator[bool, None, None]:
        """Yield whether it is ours now; waits for it at most so many seconds."""
        if not self._threads.acquire(timeout=wait_max_s):
            yield False
            return
        try:
            got = self._flock(wait_max_s)
            try:
                yield got
            finally:
                if got:
                    fcntl.flock(self._fd, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def _flock(self, wait_max_s: float) -> bool:
        pause = threading.Event()
        for _ in range(1 + int(wait_max_s / _LOOK_EVERY_S)):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pause.wait(_LOOK_EVERY_S)
            else:
                return True
        return False

    def after_fork(self) -> None:
        """In a forked child: let go of what was inherited."""
        os.close(self._fd)
        self._fd = self._reopen()
        self._threads = threading.Lock()

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


def _lives(slab: Slab, number: int) -> bool:
    """Return whether the process that took this seat is still there."""
    base = slab.seat(number)
    pid = slab.words[base + PID]
    started = started_at(pid)
    return started == slab.words[base + STARTED] or (started is None and is_hidden(pid))


def living(slab: Slab) -> tuple[list[int], list[int]]:
    """Return the seats of living processes, and those of dead ones."""
    alive: list[int] = []
    dead: list[int] = []
    words = slab.words
    for number in range(SEATS_MAX):
        base = slab.seat(number)
        if words[base + PID]:
            (alive if _lives(slab, number) else dead).append(number)
    return alive, dead


def claim(slab: Slab) -> int | None:
    """Return a vacant seat that is ours now, None when there is none. The caller holds the audit lock.

    A seat keeps its counts when it changes hands: they are the queue's.
    """
    words = slab.words
    states = [words[slab.row(slot) + STATE] for slot in range(slab.form.slots)]
    for number in range(SEATS_MAX):
        base = slab.seat(number)
        taken = words[base + PID]
        if not taken or (not _lives(slab, number) and not slots_of(states, {number})):
            words[base + STARTED] = started_at(os.getpid()) or 0
            words[base + OPS] += words[base + OPS] % 2  # whoever died there may have left it odd
            words[base + PID] = os.getpid()
            return number
    return None


def no_seat() -> UnsupportedError:
    """Return the error of a queue that too many processes use."""
    return UnsupportedError(f"a FrameQueue is for at most {SEATS_MAX} processes at a time")
