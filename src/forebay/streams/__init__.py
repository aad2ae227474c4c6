"""Frames between processes: bounded, in shared memory, every drop counted. Needs the extra `streams`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from forebay.core.buffer import Accepted, Backoff, Dropped

if TYPE_CHECKING:
    from forebay.streams.blank import Blank
    from forebay.streams.counting import FrameCounts
    from forebay.streams.frame import Frame
    from forebay.streams.queue import FrameQueue
    from forebay.streams.refusals import ClosedError, EmptyError, FullError

__all__ = [
    "Accepted",
    "Backoff",
    "Blank",
    "ClosedError",
    "Dropped",
    "EmptyError",
    "Frame",
    "FrameCounts",
    "FrameQueue",
    "FullError",
]

_HOMES = {
    "Blank": "blank",
    "ClosedError": "refusals",
    "EmptyError": "refusals",
    "Frame": "frame",
    "FrameCounts": "counting",
    "FrameQueue": "queue",
    "FullError": "refusals",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'forebay.streams' has no attribute {name!r}")
    value = getattr(import_module(f"forebay.streams.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
