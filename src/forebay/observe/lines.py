"""LineWriter: whole lines to a stream whose reader may be gone, slow or asleep: nobody waits for a log."""

import os
import select
import stat
from collections.abc import Callable
from typing import TextIO

WAIT_MS = 50  # a reader that is behind gets this long ...
PATIENCE_S = 1.0  # ... once in this time


class LineWriter:
    """Writes lines; what nobody takes is dropped and counted. A terminal that was stopped with Ctrl-S, or a
    pipe that nobody reads, would else stop the whole process in the middle of a write."""

    def __init__(
        self, stream: TextIO, *, now: Callable[[], float], lost: Callable[[int], str] | None = None
    ) -> None:
        self._stream = stream
        self._now = now
        self._told = lost
        self._fd = _never_blocking(stream)
        self._lost = 0
        self._torn = False  # the last line that was written lacks its end
        self._patient_at = 0.0  # when a reader may be waited for again

    def write(self, line: str) -> None:
        """Write one line or count it as lost. Never raises, never waits longer than WAIT_MS."""
        try:
            if self._fd is None:
                self._stream.write(line + "\n")
                self._stream.flush()
            else:
                self._put(line)
        except (OSError, ValueError):
            return

    def close(self) -> None:
        """Give our descriptor back; the stream stays open."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _put(self, line: str) -> None:
        data = _bytes(line)
        if self._lost and self._told is not None:
            data = _bytes(self._told(self._lost)) + data
        if self._torn:
            data = b"\n" + data
        left = self._give(data)
        if left == data:
            self._lost += 1
        else:
            self._lost, self._torn = 0, bool(left)

    def _give(self, data: bytes) -> bytes:
        """Return what the reader did not take."""
        fd = self._fd
        assert fd is not None
        while data:
            try:
                data = data[os.write(fd, data) :]
            except BlockingIOError:
                now = self._now()
                if now < self._patient_at:
                    return data
                self._patient_at = now + PATIENCE_S
                poll = select.poll()
                poll.register(fd, select.POLLOUT)
                poll.poll(WAIT_MS)
        return data


def _bytes(line: str) -> bytes:
    return line.encode("utf-8", "backslashreplace") + b"\n"


def _never_blocking(stream: TextIO) -> int | None:
    """Return a descriptor of our own, that never blocks, to the pipe or terminal behind the stream; None for
    anything else. The stream's own must stay as it is: whoever started us shares it.
    """
    try:
        fd = stream.fileno()
        if not (stat.S_ISFIFO(os.fstat(fd).st_mode) or os.isatty(fd)):
            return None
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError):  # no descriptor behind it, or not ours to open: it is written as it is
        return None
