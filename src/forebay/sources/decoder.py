"""Decoder: one ffmpeg process and the raw frames from its pipe."""

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from forebay.clock import SystemClock
from forebay.sources.asked import shape_of, shown
from forebay.sources.buffers import Buffers
from forebay.sources.failures import SourceError, SourceStalledError
from forebay.sources.probing import Probed, passthrough, probe, program, said

PIPE_BYTES: Final = 1 << 20  # with the usual 64 KiB a frame is a third slower or worse
LOOK_S: Final = 0.25  # a wait looks so often whether it was closed
LAST_WORDS_BYTES: Final = 4_096
END_WAIT_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to decode, and into what."""

    address: str
    size: tuple[int, int] | None
    fps: float | None
    pixels: str
    arguments: tuple[str, ...]  # before -i, as ffmpeg has them
    stall_s: float
    probe_s: float
    live: bool = False


def command(asked: Asked, size: tuple[int, int]) -> list[str]:
    """Return the command line. The size is always said: one that changes midway would tear every frame."""
    filters = ([] if asked.fps is None else [f"fps={asked.fps:g}"]) + [f"scale={size[0]}:{size[1]}"]
    hurry = ["-fflags", "nobuffer", "-flags", "low_delay"] if asked.live else []
    ffmpeg = program("ffmpeg")
    return [
        *(ffmpeg, "-nostdin", "-hide_banner", "-loglevel", "error"),
        *(*hurry, *asked.arguments, "-i", asked.address),
        *("-map", "0:v:0", "-an", "-sn", "-dn", "-vf", ",".join(filters)),
        *(*passthrough(ffmpeg), "-pix_fmt", asked.pixels, "-f", "rawvideo", "pipe:1"),
    ]


class Decoder:
    """The frames of one run of ffmpeg. Iterate it once; `close` from any thread ends it within a second.

    Raises SourceError when ffmpeg fails or is killed, with how and after how many frames, and
    SourceStalledError when no frame is whole within `stall_s`.
    """

    def __init__(self, numpy: Any, asked: Asked, probed: Probed | None = None) -> None:
        self._asked = asked
        self._clock = SystemClock()
        self._closed = threading.Event()
        if asked.size is None:
            probed = probed or probe(asked.address, arguments=asked.arguments, wait_max_s=asked.probe_s)
            self.size = (probed.width, probed.height)
        else:
            self.size = asked.size
        self.shape = shape_of(self.size, asked.pixels)
        self._buffers = Buffers(numpy, self.shape)
        self._process: subprocess.Popen[bytes] | None = None
        self._words = b""
        self.frames = 0
        self.torn_bytes = 0
        self.complaints = 0  # lines that ffmpeg wrote of what is wrong: a damaged packet, say

    @property
    def pid(self) -> int | None:
        """The process, None before the first frame is asked for."""
        return None if self._process is None else self._process.pid

    def __iter__(self) -> Iterator[Any]:
        process = self._process = _start(command(self._asked, self.size))
        try:
            if process.stdout is None or process.stderr is None:
                raise SourceError("ffmpeg has no pipes")
            yield from self._read(process, process.stdout.fileno(), process.stderr.fileno())
        finally:
            _end(process)

    def _read(self, process: "subprocess.Popen[bytes]", out: int, err: int) -> Iterator[Any]:
        while not self._closed.is_set():
            array = self._buffers.take()
            got = self._fill(memoryview(array).cast("B"), out, err)
            if got < array.nbytes:
                self.torn_bytes = got
                break
            self.frames += 1
            yield array
            del array  # the loop of the caller is all that sees it now
        if not self._closed.is_set():
            self._check_end(process, err)

    def _fill(self, room: memoryview, out: int, err: int) -> int:
        """Return how many bytes came: all there is room for, fewer at the end."""
        patience_s = self._asked.stall_s + (0.0 if self.frames else self._asked.probe_s)  # it has to connect
        got, ends_at = 0, self._clock.now() + patience_s
        poll = select.poll()
        poll.register(out, select.POLLIN)
        poll.register(err, select.POLLIN)
        while got < len(room):
            if self._closed.is_set():
                return got
            left_s = ends_at - self._clock.now()
            if left_s <= 0:
                raise SourceStalledError(
                    f"{shown(self._asked.address)}: no whole frame in {patience_s:g} s, after {self.frames}"
                )
            ready = dict(poll.poll(min(left_s, LOOK_S) * 1000))
            if err in ready and not self._hear(err):
                poll.unregister(err)
            if out in ready:
                try:
                    count = os.readv(out, [room[got:]])
                except BlockingIOError:
                    continue
                if not count:
                    return got
                got += count
        return got

    def _hear(self, err: int) -> bool:
        try:
            words = os.read(err, LAST_WORDS_BYTES)
        except BlockingIOError:
            return True
        self._words = (self._words + words)[-LAST_WORDS_BYTES:]
        self.complaints += words.count(b"\n")
        return bool(words)

    def _check_end(self, process: "subprocess.Popen[bytes]", err: int) -> None:
        try:
            code = process.wait(END_WAIT_S)
        except subprocess.TimeoutExpired:
            raise SourceError(f"{shown(self._asked.address)}: ffmpeg closed its pipe and lives on") from None
        while self._hear(err):
            pass
        after = f"after {self.frames} frames" + (" and a part of one" if self.torn_bytes else "")
        if code < 0:
            raise SourceError(f"{shown(self._asked.address)}: ffmpeg was killed by {_signal(-code)} {after}")
        if code or self.torn_bytes or not self.frames:
            raise SourceError(
                f"{shown(self._asked.address)}: ffmpeg ended with {code} {after}:"
                f" {said(self._words, self._asked.address)}"
            )

    def close(self) -> None:
        """End it; the thread that reads sees to the process."""
        self._closed.set()


def _start(line: list[str]) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            os.set_blocking(pipe.fileno(), False)
    if process.stdout is not None:
        # A user past the limit on pipes may have none larger: slower, and right all the same.
        with contextlib.suppress(OSError):
            fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return process


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Stop it and reap it. It writes to nobody any more, so it may be killed."""
    if process.poll() is None:
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel: it ends when that lets it
        process.wait(END_WAIT_S)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
