"""Rtsp: a network camera, decoded by ffmpeg or PyAV, that is connected to again when it is lost."""

from collections.abc import Callable
from typing import Any, Final

from forebay.core.buffer import Backoff
from forebay.errors import InvalidError
from forebay.sources.asked import name_of, wait_s
from forebay.sources.camera import GIVE_UP, STEADY_S, Camera
from forebay.sources.clip import PROBE_S, asked_of
from forebay.sources.decoder import Asked, Decoder
from forebay.sources.probing import Probed, probe
from forebay.sources.pyav import Opened
from forebay.streams.asked import load_numpy

SCHEMES: Final = (
    "rtsp://",
    "rtsps://",
    "rtmp://",
    "http://",
    "https://",
    "srt://",
    "udp://",
    "rtp://",
    "tcp://",
)


def rtsp(
    address: str,
    *,
    stream: str | None = None,
    size: tuple[int, int] | str | None = None,
    fps: float | None = None,
    pixels: str = "rgb24",
    by: str = "ffmpeg",
    transport: str = "tcp",
    arguments: tuple[str, ...] = (),
    stall: str | float = "5s",
    probe_max: str | float = PROBE_S,
    backoff: Backoff | None = None,
    give_up: str | float | None = GIVE_UP,
) -> Camera:
    """Return a live source of a network camera. A password in `address` is in no message.

    `by`: `ffmpeg` (a process of its own) or `av` (PyAV, in a thread). `transport`: of RTSP, `tcp` or `udp`.
    Silence of `stall` is a loss; after a loss it waits (`backoff`, half of it drawn) and connects again, and
    asks for the size again, until `give_up` has passed without a frame. Raises InvalidError for arguments.
    """
    if not str(address).startswith(SCHEMES):
        raise InvalidError(f"address must begin with {', '.join(SCHEMES)}, not {str(address)!r:.40}")
    if by not in {"ffmpeg", "av"}:
        raise InvalidError(f"by must be ffmpeg or av, not {by!r:.40}")
    if transport not in {"tcp", "udp"}:
        raise InvalidError(f"transport must be tcp or udp, not {transport!r:.40}")
    is_rtsp = address.startswith(("rtsp://", "rtsps://"))
    before = ("-rtsp_transport", transport) if is_rtsp else ()
    asked = asked_of(
        address,
        size=size,
        fps=fps,
        pixels=pixels,
        arguments=(*before, *arguments),
        stall=stall,
        probe=probe_max,
        live=True,
    )
    options = {"rtsp_transport": transport} if is_rtsp else {}
    return Camera(
        _by_ffmpeg(asked) if by == "ffmpeg" else lambda: Opened(asked, options),
        stream=name_of(address) if stream is None else stream,
        backoff=backoff or Backoff("500ms", cap="30s"),
        give_up_s=wait_s("give_up", give_up),
        steady_s=STEADY_S,
    )


def _by_ffmpeg(asked: Asked) -> Callable[[], Any]:
    def connect() -> Decoder:
        probed: Probed | None = None
        if asked.size is None:
            probed = probe(asked.address, arguments=asked.arguments, wait_max_s=asked.probe_s)
        return Decoder(load_numpy(), asked, probed)

    return connect
