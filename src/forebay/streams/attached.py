"""Attached: one queue as this process has it: memory, pipes and a seat; and its way to other processes."""

import contextlib
import multiprocessing.context
import multiprocessing.reduction
import os
import weakref
from typing import Any

from forebay.streams.asked import load_numpy
from forebay.streams.channel import Pipe, Pipes
from forebay.streams.eager import Eager
from forebay.streams.machine import Place
from forebay.streams.refusals import ClosedError
from forebay.streams.ring import Ring
from forebay.streams.slab import CREATOR, Form, Slab
from forebay.streams.views import Views
from forebay.streams.watching import Watch
from forebay.streams.writing import Writer


class Attached:
    """What FrameQueue stands on. Begins anew in a forked child, and travels as descriptors where a process is
    spawned."""

    def _attach(self, slab: Slab, pipes: Pipes) -> None:
        self._numpy = load_numpy()
        self._form = slab.form
        self._ring = ring = Ring(slab, pipes)
        self._words = slab.words
        self._views = Views(ring)
        self._writer = Writer(ring, self._numpy)
        self._eager = Eager(slab)
        self._shape = slab.form.shape
        self._dtype = None if slab.form.dtype is None else self._numpy.dtype(slab.form.dtype)
        self._ndarray = self._numpy.ndarray
        self._offsets = [slab.offset(slot) for slot in range(slab.form.slots)]
        self._watch: Watch | None = None
        self._ready = False
        self._mapped = True
        self._tries = 0
        self._looked_at = 0.0
        self._wake_below = slab.form.maxsize - slab.form.maxsize // 4
        _queues.add(self)
        weakref.finalize(ring, _close_all, slab.place.fd, pipes, ring.audit_lock).atexit = False

    def _open(self) -> None:
        """Raise ClosedError after close; at the first use take a seat and, in the creator, begin to watch."""
        if self._ring.closed:
            raise ClosedError(f"{self!r} is closed in this process")
        assert self._ring.seat >= 0
        if not self._mapped:
            self._ring.slab.populate()
            self._mapped = True
        if self._watch is None and self._words[CREATOR] == os.getpid():
            self._watch = Watch(self._ring)
        self._ready = True

    def __getstate__(self) -> tuple[Any, ...]:
        multiprocessing.context.assert_spawning(self)
        if self._ring.closed:
            raise ClosedError(f"{self!r} is closed in this process")
        place, pipes = self._ring.slab.place, self._ring.pipes
        fds = [place.fd, *(pipe.fd for pipe in pipes.every)]
        return self._form, place.kind, [multiprocessing.reduction.DupFd(fd) for fd in fds]

    def __setstate__(self, state: tuple[Form, str, list[Any]]) -> None:
        form, kind, sent = state
        fds = [one.detach() for one in sent]
        for fd in fds:
            os.set_inheritable(fd, False)
        *work, hot, cold, room, end, scratch = [Pipe(fd) for fd in fds[1:]]
        self._attach(Slab(form, Place(fds[0], kind)), Pipes(tuple(work), hot, cold, room, end, scratch))

    def after_fork(self) -> None:
        """In a forked child: begin anew, with a seat of its own. Called by the interpreter."""
        self._ring.after_fork()
        self._views.after_fork()
        self._writer.after_fork()
        self._eager = Eager(self._ring.slab)
        self._watch = None
        self._ready = self._mapped = False


def _close_all(memory_fd: int, pipes: Pipes, lock: Any) -> None:
    for close in (lambda: os.close(memory_fd), lock.close, *(pipe.close for pipe in pipes.every)):
        with contextlib.suppress(OSError):
            close()


_queues: "weakref.WeakSet[Attached]" = weakref.WeakSet()


def _after_fork() -> None:
    for queue in list(_queues):
        queue.after_fork()


os.register_at_fork(after_in_child=_after_fork)
