"""Films: arrays as a film, encoded by an ffmpeg process that is fed through a pipe."""

import os
import select
import subprocess
from collections.abc import Mapping
from typing import Any, Final

from forebay.clock import SystemClock
from forebay.errors import InvalidError
from forebay.sinks.shape import is_pixels
from forebay.sources.asked import CHANNELS, frame_rate, pixel_kind, shape_of, wait_s
from forebay.sources.failures import SinkError
from forebay.sources.probing import program, said
from forebay.streams.ports import Result

END_WAIT_MAX_S: Final = 60.0
LAST_WORDS_BYTES: Final = 4_096


class Film:
    """What `mp4` returns. The first result says the size; others must have it."""

    def __init__(self, path: str, *, fps: float, pixels: str, stall_s: float) -> None:
        self._path, self._fps, self._pixels, self._stall_s = path, fps, pixels, stall_s
        self._ffmpeg = program("ffmpeg")
        self._clock = SystemClock()
        self._shape: tuple[int, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None
        self._counts = {"written": 0, "failed": 0}

    def write(self, result: Result) -> None:
        """Encode one array. Raises InvalidError for what is not of this film, SinkError when ffmpeg fails."""
        try:
            array = self._array(result)
            self._feed(memoryview(array).cast("B"))
        except Exception:
            self._counts["failed"] += 1
            raise
        self._counts["written"] += 1

    def _array(self, result: Result) -> Any:
        import numpy

        if not is_pixels(result.value):
            raise InvalidError(f"a film is made of arrays, not of {type(result.value).__name__}")
        array = numpy.ascontiguousarray(result.value)
        if self._process is None:
            self._start(array)
        if array.shape != self._shape or array.dtype != numpy.uint8:
            raise InvalidError(
                f"this film is of {self._shape} uint8, its first frame, and {result.stream} {result.seq} is"
                f" {array.shape} {array.dtype}"
            )
        return array

    def _start(self, array: Any) -> None:
        shape = tuple(array.shape)
        if (
            len(shape) not in {2, 3}
            or shape != shape_of((shape[1], shape[0]), self._pixels)
            or not array.size
        ):
            raise InvalidError(
                f"a film of {self._pixels} is made of (height, width, {CHANNELS[self._pixels]}), not {shape}"
            )
        command = [
            *(self._ffmpeg, "-nostdin", "-hide_banner", "-loglevel", "error", "-y", "-f", "rawvideo"),
            *(
                "-pix_fmt",
                self._pixels,
                "-s",
                f"{shape[1]}x{shape[0]}",
                "-r",
                f"{self._fps:g}",
                "-i",
                "pipe:0",
            ),
            *("-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-c:v", "libx264", "-preset", "veryfast"),
            *("-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", self._path),
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, bufsize=0
        )
        for pipe in (self._process.stdin, self._process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        self._shape = shape

    def _feed(self, left: memoryview) -> None:
        process = self._process
        if process is None or process.stdin is None or process.stdin.closed:
            raise SinkError(f"{self._path}: the film has ended")
        pipe, ends_at = process.stdin.fileno(), self._clock.now() + self._stall_s
        poll = select.poll()
        poll.register(pipe, select.POLLOUT)
        while left:
            wait = ends_at - self._clock.now()
            if wait <= 0 or not poll.poll(wait * 1000):
                raise self._fail(f"ffmpeg took nothing for {self._stall_s:g} s")
            try:
                left = left[os.write(pipe, left) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self._fail("ffmpeg has ended") from None

    def _fail(self, what: str) -> SinkError:
        """End ffmpeg, since half a frame in its pipe would tear all that come after it."""
        process = self._process
        words = b""
        if process is not None:
            process.kill()
            process.wait(END_WAIT_MAX_S)
            if process.stderr is not None:
                words = process.stderr.read() or b""
            _close(process)
        return SinkError(f"{self._path}: {what}: {said(words[-LAST_WORDS_BYTES:], self._path)}")

    def counts(self) -> Mapping[str, int]:
        """Return `written` and `failed`."""
        return dict(self._counts)

    def close(self) -> None:
        """Have ffmpeg finish the film. Raises SinkError when it could not."""
        process = self._process
        if process is None or process.stdin is None or process.stdin.closed:
            return
        process.stdin.close()
        try:
            code = process.wait(END_WAIT_MAX_S)
        except subprocess.TimeoutExpired:
            raise self._fail(f"the film was not finished in {END_WAIT_MAX_S:.0f} s") from None
        words = process.stderr.read() or b"" if process.stderr is not None else b""
        _close(process)
        if code:
            raise SinkError(f"{self._path}: ffmpeg ended with {code}: {said(words, self._path)}")


def _close(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stderr):
        if pipe is not None:
            pipe.close()


def mp4(
    path: str | os.PathLike[str], *, fps: float, pixels: str = "rgb24", stall: str | float = "30s"
) -> Film:
    """Return a sink that makes a film (H.264 in MP4) of results that are arrays of uint8, of one size.

    `pixels`: their layout, rgb24, bgr24, rgba or gray. ffmpeg may take nothing for `stall`. An older file of
    that name is replaced. Raises UnsupportedError without ffmpeg, InvalidError for a wrong argument.
    """
    return Film(
        os.fspath(path),
        fps=frame_rate("fps", fps),
        pixels=pixel_kind(pixels),
        stall_s=wait_s("stall", stall) or 30.0,
    )
