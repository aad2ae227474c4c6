"""LineCounts: how many stand in the lanes of each priority, and since when, by a look at what changed."""

from collections.abc import Mapping
from typing import Protocol

from forebay.brokers.sqlite.heap import LazyHeap
from forebay.core.job import Line
from forebay.core.standing import LineKey


class Counted(Protocol):
    """A lane as it is counted."""

    def __len__(self) -> int:
        """Return how many stand in it."""
        ...

    def oldest_at(self) -> float | None:
        """Return since when the first of them has been ready."""
        ...


class _Priority:
    """The lanes of one priority."""

    def __init__(self) -> None:
        self.queued = 0
        self.oldest = LazyHeap()  # of numbered lanes, by the ready time of their oldest job


class LineCounts:
    """What `Depth.lines` is made of: `touch` for whoever changes a lane, `forget` for who puts lanes back."""

    def __init__(self) -> None:
        self._all = False  # look at every lane next
        self._touched: dict[LineKey, None] = {}
        self._seen: dict[LineKey, tuple[int, int]] = {}  # number and length, of lanes that somebody stands in
        self._numbers = 0
        self._priorities: dict[int, _Priority] = {}

    def touch(self, key: LineKey) -> None:
        """Take note that a lane has changed."""
        self._touched[key] = None

    def forget(self) -> None:
        """Look at every lane next time."""
        self._all = True
        self._touched.clear()

    def read(self, lanes: Mapping[LineKey, Counted]) -> tuple[Line, ...]:
        """Return the line of each priority, most urgent first."""
        if self._all:
            self._all = False
            self._seen.clear()
            self._priorities.clear()
            self._touched.update(dict.fromkeys(lanes))
        for key in self._touched:
            self._look(key, lanes.get(key))
        self._touched.clear()
        lines: list[Line] = []
        for priority, counts in sorted(self._priorities.items()):
            top = counts.oldest.top()
            if top is not None:
                lines.append(Line(priority, counts.queued, top[0]))
        return tuple(lines)

    def tidy(self, lanes: int) -> None:
        """Keep no more names than there are lanes, nearly: nobody may ever read."""
        if len(self._touched) > 2 * lanes + 64:
            self.forget()

    def _look(self, key: LineKey, lane: Counted | None) -> None:
        counts = self._priorities.get(key[0])
        if counts is None:
            counts = self._priorities[key[0]] = _Priority()
        before = self._seen.pop(key, None)
        if before is not None:
            counts.queued -= before[1]
            counts.oldest.discard(before[0])
        at = None if lane is None else lane.oldest_at()
        if lane is None or at is None:
            return
        self._numbers += 1
        self._seen[key] = (self._numbers, len(lane))
        counts.queued += len(lane)
        counts.oldest.push(at, self._numbers)
