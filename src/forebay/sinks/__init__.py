"""Where results go: functions, files, films, subscribers, topics. Each is a `streams.ports.Sink`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.sinks.files import file, read_raw
    from forebay.sinks.films import mp4
    from forebay.sinks.functions import callback
    from forebay.sinks.subscribers import websocket
    from forebay.sinks.topics import kafka

__all__ = ["callback", "file", "kafka", "mp4", "read_raw", "websocket"]

_HOMES = {
    "callback": "functions",
    "file": "files",
    "kafka": "topics",
    "mp4": "films",
    "read_raw": "files",
    "websocket": "subscribers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'forebay.sinks' has no attribute {name!r}")
    value = getattr(import_module(f"forebay.sinks.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
