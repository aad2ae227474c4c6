"""LaneEnds: which lane holds the job that ends first: no look goes over lanes where nothing is due."""

import math
from typing import Protocol

from forebay.brokers.sqlite.heap import LazyHeap
from forebay.brokers.sqlite.journal import Journal


class Ending(Protocol):
    """A lane whose jobs may end."""

    soonest: float  # no job of the line ends before; math.inf without any

    def pull_due(self, now: float, into: LazyHeap) -> int:
        """Push the ends that have passed of one chunk; return how many. Sets `soonest` anew."""
        ...


class LaneEnds:
    """The lanes by their `soonest`, which may be too early and is never too late.

    Costs O(log lanes) where a lane gets an earlier end, or where one has passed.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._order = LazyHeap()  # of the ids of lanes
        self._lanes: dict[int, Ending] = {}  # holds them, so that an id means one lane

    def __len__(self) -> int:
        return len(self._lanes)

    def lower(self, lane: Ending, end: float) -> None:
        """Take note that a job of the lane ends at `end`, before all others there."""
        lane.soonest = end
        if end == math.inf:
            self._order.discard(id(lane))
            self._lanes.pop(id(lane), None)
            return
        self._lanes[id(lane)] = lane
        self._order.push(end, id(lane))

    def forget(self, lane: Ending) -> None:
        """Take out a lane that is dropped."""
        if lane.soonest != math.inf:
            self._journal.undo_by(self.lower, lane, lane.soonest)
            self.lower(lane, math.inf)

    def soonest(self) -> float:
        """Return an instant that no job of any line ends before."""
        top = self._order.top()
        return math.inf if top is None else top[0]

    def pull(self, now: float, into: LazyHeap) -> int:
        """Push the ends that have passed of one chunk of the lane that is first; return how many."""
        top = self._order.top()
        assert top is not None
        lane = self._lanes[top[1]]
        self._journal.undo_by(self.lower, lane, lane.soonest)
        pulled = lane.pull_due(now, into)
        self.lower(lane, lane.soonest)
        return pulled
