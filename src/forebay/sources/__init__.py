"""Where frames come from: user code, files, cameras, pushes, topics. Each is a `streams.ports.Source`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.sources.camera import reconnecting
    from forebay.sources.clip import ffmpeg
    from forebay.sources.items import arrays, iterable
    from forebay.sources.rtsp import rtsp
    from forebay.sources.video import video

__all__ = ["arrays", "ffmpeg", "iterable", "reconnecting", "rtsp", "video"]

_HOMES = {
    "arrays": "items",
    "ffmpeg": "clip",
    "iterable": "items",
    "reconnecting": "camera",
    "rtsp": "rtsp",
    "video": "video",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'forebay.sources' has no attribute {name!r}")
    value = getattr(import_module(f"forebay.sources.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
