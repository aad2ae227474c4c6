"""What the children of one lane report while they run, on its way to the Feed: whose it is, and in runs."""

from collections.abc import Sequence

from forebay.core.hand import Hand
from forebay.ports.feed import Feed


class Feeding:
    """Names the lease behind each tag. What nobody holds any more is dropped."""

    def __init__(self, hand: Hand, feed: Feed | None) -> None:
        self._hand = hand
        self._feed = feed

    def progress(self, tag: int, text: bytes) -> None:
        """Pass on a report of progress."""
        item = self._hand.items.get(tag)
        if self._feed is not None and item is not None:
            self._feed.progress(item.lease, text)

    def parts(self, parts: Sequence[tuple[int, int, bytes]]) -> None:
        """Pass on parts of outputs, (tag, number of the part, JSON text), those of an item together."""
        runs: dict[int, tuple[int, list[bytes]]] = {}
        for tag, number, text in parts:
            first, texts = runs.get(tag) or (number, [])
            if first + len(texts) != number:  # it begins anew in the middle of a frame
                self._tell(tag, first, texts)
                first, texts = number, []
            texts.append(text)
            runs[tag] = (first, texts)
        for tag, (first, texts) in runs.items():
            self._tell(tag, first, texts)

    def _tell(self, tag: int, number: int, texts: Sequence[bytes]) -> None:
        item = self._hand.items.get(tag)
        if self._feed is not None and item is not None:
            self._feed.parts(item.lease, number, texts)
