"""Newest: the latest frame of each stream between a thread that reads and one that asks."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from forebay.streams.ports import Captured

LOOK_S: Final = 0.5  # a wait looks so often, should a bell be missed


class Newest:
    """Holds one frame of each stream, the newest, in the order in which streams have waited."""

    def __init__(self) -> None:
        self._bell = threading.Condition()
        self._frames: OrderedDict[str, Captured] = OrderedDict()
        self._ended = False
        self._error: BaseException | None = None

    def put(self, captured: Captured) -> int:
        """Take a frame in, and return how many it replaced: 0 or 1."""
        with self._bell:
            if self._ended:
                return 1
            replaced = captured.stream in self._frames
            self._frames[captured.stream] = captured  # a stream keeps its turn
            self._bell.notify()
            return int(replaced)

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more comes. With an error what waits is still given, and then the error raised."""
        with self._bell:
            if not self._ended:
                self._ended, self._error = True, error
            self._bell.notify_all()

    def __iter__(self) -> Iterator[Captured]:
        """Return frames as they come; raises the error of the end."""
        while True:
            with self._bell:
                while not self._frames and not self._ended:
                    self._bell.wait(LOOK_S)
                if not self._frames:
                    if self._error is not None:
                        raise self._error
                    return
                _, captured = self._frames.popitem(last=False)
            yield captured
            del captured
