"""Clip: a video file, or what else ends by itself, decoded by ffmpeg or by PyAV."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from forebay.sources.asked import frame_rate, frame_size, name_of, pixel_kind, stream_name, wait_s
from forebay.sources.decoder import Asked, Decoder
from forebay.sources.feed import Feed
from forebay.sources.pace import Pace
from forebay.streams.asked import load_numpy
from forebay.streams.ports import Captured

STALL_S = "10s"
PROBE_S = "10s"


class Frames(Protocol):
    """One run of something that decodes: arrays that nobody else writes to, until it ends or raises."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of every frame."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Return the frames."""
        ...

    def close(self) -> None:
        """End soon, from any thread."""
        ...


class Clip(Feed):
    """What `ffmpeg` and `video` return. It waits for whoever reads, so it loses nothing."""

    def __init__(self, open_frames: Callable[[], Frames], *, stream: str, realtime_fps: float | None) -> None:
        super().__init__("slips", "complaints")
        self.stream = stream_name(stream)
        self._frames = open_frames()
        self.shape = self._frames.shape
        self.item_bytes_max = _product(self.shape)
        self._pace = Pace(realtime_fps, self.clock, self.closed)

    def __iter__(self) -> Iterator[Captured]:
        """Return the frames. Raises SourceError when decoding fails, SourceStalledError when it stalls."""
        try:
            for array in self._frames:
                if not self._pace.wait():
                    return
                self.count("frames")
                yield Captured(array, self.stream, self.clock.now())
                del array
        finally:
            self.count("slips", self._pace.slips)
            self.count("complaints", getattr(self._frames, "complaints", 0))

    def close(self) -> None:
        """End within a second."""
        super().close()
        self._frames.close()


def asked_of(
    address: str,
    *,
    size: object,
    fps: object,
    pixels: object,
    arguments: tuple[str, ...],
    stall: object,
    probe: object,
    live: bool = False,
) -> Asked:
    """Return checked arguments of a decoder. Raises InvalidError that names the field."""
    return Asked(
        address=address,
        size=frame_size(size),
        fps=None if fps is None else frame_rate("fps", fps),
        pixels=pixel_kind(pixels),
        arguments=tuple(arguments),
        stall_s=wait_s("stall", stall) or 10.0,
        probe_s=wait_s("probe", probe) or 10.0,
        live=live,
    )


def ffmpeg(
    address: str,
    *,
    stream: str | None = None,
    size: tuple[int, int] | str | None = None,
    fps: float | None = None,
    realtime: float | None = None,
    pixels: str = "rgb24",
    arguments: tuple[str, ...] = (),
    stall: str | float = STALL_S,
    probe: str | float = PROBE_S,
) -> Clip:
    """Return a source of what ffmpeg decodes from a file, or what else ends; for cameras there is `rtsp`.

    `size`: (width, height) or "640x480"; without it ffprobe is asked. `fps`: frames are left out or doubled
    to that rate. `realtime`: not faster than so many frames/s. `pixels`: rgb24, bgr24, rgba or gray.
    `arguments`: of ffmpeg, before its `-i`. Whole frames may be `stall` apart. The capture is when a frame
    was decoded. Raises UnsupportedError without ffmpeg, SourceError when there is no video.
    """
    asked = asked_of(
        address, size=size, fps=fps, pixels=pixels, arguments=arguments, stall=stall, probe=probe
    )
    return Clip(
        lambda: Decoder(load_numpy(), asked),
        stream=name_of(address) if stream is None else stream,
        realtime_fps=None if realtime is None else frame_rate("realtime", realtime),
    )


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for length in shape:
        total *= length
    return total
