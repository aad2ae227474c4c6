"""Link: the node's end of the socket to one child, as messages."""

import asyncio
from collections.abc import Callable

import msgspec

from forebay.node.frames import FrameError, ItemResult, Splitter, decode_results, decode_to_node


def left_behind(kept: bytes, heard: int) -> list[ItemResult]:
    """Return the results that a dead child had kept, without so many that were heard already; none where
    user code wrote over them."""
    try:
        return decode_results(kept)[heard:]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []


class Link(asyncio.Protocol):
    """Cuts what arrives into messages and hands each on; never raises into the loop for what it reads."""

    def __init__(
        self,
        *,
        on_message: Callable[[object], None],
        on_garbage: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._on_message = on_message
        self._on_garbage = on_garbage
        self._on_lost = on_lost
        self._splitter = Splitter()

    def data_received(self, data: bytes) -> None:
        """Take bytes from the child."""
        try:
            messages = [decode_to_node(frame) for frame in self._splitter.feed(data)]
        except (FrameError, msgspec.DecodeError):
            self._on_garbage()
            return
        for message in messages:
            self._on_message(message)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that no bytes follow."""
        self._on_lost()
