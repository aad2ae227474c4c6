"""Pipe: a queue of eight-byte entries in the kernel. Each is written and read whole, so nobody holds a lock
that could be left locked by a death, and any process can look at all entries without taking one."""

import ctypes
import fcntl
import os
import select
import termios
from collections.abc import Sequence
from typing import Final, NamedTuple

from forebay.errors import UnsupportedError

ENTRY_BYTES: Final = 8
PAGE_BYTES: Final = 4096
ATOMIC_ENTRIES: Final = 512  # PIPE_BUF: so many are written in one piece
ENTRIES_MAX: Final = 64_000  # with the slots in use, fits twice into the megabyte a pipe may have
_NONBLOCK: Final = 2  # SPLICE_F_NONBLOCK
_WAITING: Final = termios.FIONREAD
_ioctl: Final = fcntl.ioctl  # for every frame, hence by a short way


class Pipe:
    """One kernel pipe through one descriptor, which reads and writes and never blocks."""

    __slots__ = ("_count", "_seen", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._seen = bytearray(4)
        self._count = memoryview(self._seen).cast("I")

    @classmethod
    def create(cls, entries: int) -> "Pipe":
        """Return a new pipe that holds at least `entries`. Raises UnsupportedError that names the limit."""
        reader, writer = os.pipe()
        try:
            # Both directions in one descriptor, of its own description: no end-of-file, no SIGPIPE.
            fd = os.open(f"/proc/self/fd/{reader}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise UnsupportedError(f"frames between processes need /proc: {error}") from None
        finally:
            os.close(reader)
            os.close(writer)
        _widen(fd, entries)
        return cls(fd)

    def write(self, entry: bytes) -> bool:
        """Append entries, all or none; False when there is no room."""
        try:
            os.write(self.fd, entry)
        except BlockingIOError:
            return False
        return True

    def read(self, most: int = 1) -> bytes:
        """Take up to `most` entries from the front; empty when there is none."""
        try:
            return os.read(self.fd, most * ENTRY_BYTES)
        except BlockingIOError:
            return b""

    def pour(self, into: "Pipe", most: int) -> int:
        """Move entries, up to `most` and to a page, from the front to the end of another; return how many."""
        entries = self.read(min(most, ATOMIC_ENTRIES))
        if entries:
            into.write(entries)
        return len(entries) // ENTRY_BYTES

    def depth(self) -> int:
        """Return how many entries wait now."""
        _ioctl(self.fd, _WAITING, self._seen)
        return self._count[0] // ENTRY_BYTES

    def peek(self, scratch: "Pipe") -> Sequence[int]:
        """Return all entries that wait now and leave them there. `scratch` is as wide, for this alone."""
        while scratch.read(ATOMIC_ENTRIES):  # what an auditor left that was killed here
            pass
        left = copied = _tee(self.fd, scratch.fd, self.width())
        found: list[bytes] = []
        while left:
            found.append(os.read(scratch.fd, left))
            left -= len(found[-1])
        assert copied % ENTRY_BYTES == 0
        return memoryview(b"".join(found)).cast("Q")

    def width(self) -> int:
        """Return how many bytes it can hold."""
        return fcntl.fcntl(self.fd, fcntl.F_GETPIPE_SZ)

    def close(self) -> None:
        """Close this process's descriptor."""
        os.close(self.fd)


class Pipes(NamedTuple):
    """The pipes of a queue: frames by priority, slots just freed, slots freed long ago, and two bells."""

    work: tuple[Pipe, ...]
    hot: Pipe
    cold: Pipe
    room: Pipe  # rung for writers that wait for room
    end: Pipe  # rung once, at the end of the stream
    scratch: Pipe  # where an audit copies the others to look at them

    @property
    def every(self) -> list[Pipe]:
        """All of them."""
        return [*self.work, self.hot, self.cold, self.room, self.end, self.scratch]


def wait_any(pipes: list[Pipe], wait_s: float) -> bool:
    """Return whether one of the pipes has something, after at most so long."""
    poll = select.poll()
    for pipe in pipes:
        poll.register(pipe.fd, select.POLLIN)
    return bool(poll.poll(wait_s * 1000))


def _widen(fd: int, entries: int) -> None:
    # One page more: the page at the front stays until its last entry is read.
    pages = -(-entries * ENTRY_BYTES // PAGE_BYTES) + 1
    width = (1 << (pages - 1).bit_length()) * PAGE_BYTES
    try:
        got = fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, width)
    except OSError:
        got = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
    if got < pages * PAGE_BYTES:
        os.close(fd)
        most = (got // PAGE_BYTES - 1) * PAGE_BYTES // ENTRY_BYTES
        raise UnsupportedError(
            f"a pipe for {entries} frames needs {width} bytes and this user gets {got}, enough for {most}:"
            " ask for less, close other pipes, or raise /proc/sys/fs/pipe-user-pages-soft and pipe-max-size"
        )


def _tee(source: int, target: int, length: int) -> int:
    copied = _libc().tee(source, target, length, _NONBLOCK)
    if copied >= 0:
        return int(copied)
    code = ctypes.get_errno()
    if code == 11:  # EAGAIN: empty
        return 0
    raise OSError(code, os.strerror(code))


_loaded: list[ctypes.CDLL] = []


def _libc() -> ctypes.CDLL:
    if not _loaded:
        library = ctypes.CDLL(None, use_errno=True)
        library.tee.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint)
        library.tee.restype = ctypes.c_ssize_t
        _loaded.append(library)
    return _loaded[0]
