"""Kept: results that wait to be sent, in memory that outlives the process.

They wait a few milliseconds for company while the next item runs. Should that one kill the process, the node
reads them here: nobody is run again for the death of another.
"""

from typing import Final

from forebay.node.frames import (
    KEPT_AT,
    PAGE_ARRIVED,
    PAGE_BYTES,
    PAGE_KEPT,
    PAGE_SENT,
    ItemResult,
    encode_result,
)

OUTPUT_BYTES_MAX: Final = PAGE_BYTES // 8  # a larger one is worth a message of its own


class Kept:
    """The child's side of the shared page, but for the mark. One writer at a time."""

    def __init__(self, page: memoryview) -> None:
        self._page = page
        self._words = page.cast("Q")
        self._end = KEPT_AT
        self._count = 0

    def arrived(self, run: int) -> None:
        """This run, and all before it, have been taken in."""
        self._words[PAGE_ARRIVED] = run

    def add(self, result: ItemResult) -> bool:
        """Keep one more; False where there is no room, and it should be sent before the next call."""
        if result.output is not None and len(result.output) > OUTPUT_BYTES_MAX:
            return False
        text = encode_result(result)
        at, end = self._end, self._end + len(text)
        if end > PAGE_BYTES:
            return False
        self._page[at:end] = text
        self._end = end
        self._count += 1
        self._words[PAGE_KEPT] = self._count << 32 | end  # last: what is half written is not there
        return True

    def sent(self, count: int) -> None:
        """All of them were sent, with those that found no room: so many."""
        self._end, self._count = KEPT_AT, 0
        self._words[PAGE_KEPT] = 0
        self._words[PAGE_SENT] += count
