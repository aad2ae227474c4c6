"""Video: decoding in this process by PyAV, without a second process. Needs the extra `video`."""

import threading
from collections.abc import Iterator
from typing import Any

from forebay.sources.asked import frame_rate, load, name_of, shape_of, shown
from forebay.sources.clip import PROBE_S, STALL_S, Clip, asked_of
from forebay.sources.decoder import Asked
from forebay.sources.failures import SourceError, SourceStalledError


class Opened:
    """The frames of one opening of an address. Raises what Decoder raises, for the same reasons."""

    def __init__(self, asked: Asked, options: dict[str, str]) -> None:
        self._av = load("av", "video", "forebay.sources.video")
        self._asked = asked
        self._closed = threading.Event()
        self.frames = 0
        self.complaints = 0  # packets that could not be decoded
        try:
            self._container = self._av.open(
                asked.address, options=options, timeout=(asked.probe_s, asked.stall_s)
            )
        except (self._av.error.FFmpegError, OSError, ValueError) as error:
            raise self._failed(error) from None
        if not self._container.streams.video:
            self._container.close()
            raise SourceError(f"{shown(asked.address)}: there is no video in it")
        self._video = self._container.streams.video[0]
        self.size = asked.size or (int(self._video.width), int(self._video.height))
        if not all(self.size):
            self._container.close()
            raise SourceError(f"{shown(asked.address)}: it does not say its size: give size=(width, height)")
        self.shape = shape_of(self.size, asked.pixels)

    def __iter__(self) -> Iterator[Any]:
        width, height = self.size
        due, step = 0.0, 0.0 if self._asked.fps is None else 1.0 / self._asked.fps
        try:
            for frame in self._decoded():
                if self._closed.is_set():
                    return
                if step and frame.time is not None:
                    if frame.time + 1e-6 < due:
                        continue
                    due = max(due + step, frame.time + step / 2)
                self.frames += 1
                yield frame.to_ndarray(format=self._asked.pixels, width=width, height=height)
        except (self._av.error.FFmpegError, OSError, ValueError) as error:
            raise self._failed(error) from None
        finally:
            self._container.close()
        if not self.frames:
            raise SourceError(f"{shown(self._asked.address)}: it ended before its first frame")

    def _decoded(self) -> Iterator[Any]:
        for packet in self._container.demux(self._video):
            try:
                found = packet.decode()
            except self._av.error.InvalidDataError:
                self.complaints += 1
                continue
            yield from found

    def _failed(self, error: Exception) -> SourceError:
        what = getattr(error, "strerror", None) or type(error).__name__
        if isinstance(error, self._av.error.ExitError | TimeoutError):  # how its own timeout shows
            return SourceStalledError(
                f"{shown(self._asked.address)}: no frame in {self._asked.stall_s:g} s, after {self.frames}"
            )
        return SourceError(f"{shown(self._asked.address)}: {what} (after {self.frames} frames)")

    def close(self) -> None:
        """End at the next frame; a read that waits ends after its timeout."""
        self._closed.set()


def video(
    address: str,
    *,
    stream: str | None = None,
    size: tuple[int, int] | str | None = None,
    fps: float | None = None,
    realtime: float | None = None,
    pixels: str = "rgb24",
    options: dict[str, str] | None = None,
    stall: str | float = STALL_S,
    probe: str | float = PROBE_S,
) -> Clip:
    """Return a source of what PyAV decodes: `ffmpeg` without the program. Arguments as there; `fps` leaves
    frames out and doubles none; `options` are those of its demuxer. Raises ConfigError without the extra.
    """
    asked = asked_of(address, size=size, fps=fps, pixels=pixels, arguments=(), stall=stall, probe=probe)
    return Clip(
        lambda: Opened(asked, dict(options or {})),
        stream=name_of(address) if stream is None else stream,
        realtime_fps=None if realtime is None else frame_rate("realtime", realtime),
    )
