"""Where frames come from: user code, files, cameras, pushes, topics. Each is a `streams.ports.Source`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.core.rtc_stats import join as journey
    from forebay.core.rtc_stats import read_stats
    from forebay.sources.camera import reconnecting
    from forebay.sources.clip import ffmpeg
    from forebay.sources.items import arrays, iterable
    from forebay.sources.network import rtsp
    from forebay.sources.pushed import push
    from forebay.sources.pyav import video
    from forebay.sources.topics import kafka

__all__ = [
    "arrays",
    "ffmpeg",
    "iterable",
    "journey",
    "kafka",
    "push",
    "read_stats",
    "reconnecting",
    "rtsp",
    "video",
]

_HOMES = {
    "arrays": ("sources.items", "arrays"),
    "ffmpeg": ("sources.clip", "ffmpeg"),
    "iterable": ("sources.items", "iterable"),
    "journey": ("core.rtc_stats", "join"),
    "kafka": ("sources.topics", "kafka"),
    "push": ("sources.pushed", "push"),
    "read_stats": ("core.rtc_stats", "read_stats"),
    "reconnecting": ("sources.camera", "reconnecting"),
    "rtsp": ("sources.network", "rtsp"),
    "video": ("sources.pyav", "video"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'forebay.sources' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = getattr(import_module(f"forebay.{module}"), attribute)
    globals()[name] = value
    return value
