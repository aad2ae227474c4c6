"""Lanes: the frames that wait at one stage, a line for each stream. Streams take turns by their weights;
where one must lose a frame it is the one with the longest line for its weight, and a protected one last."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

STREAMS_MAX: Final = 256  # of one pipeline; those past it are one stream together
OTHERS: Final = "(others)"


class StreamShare(NamedTuple):
    """What a stream may ask for beside others."""

    weight: float = 1.0  # its part of the turns, and of the room where there is too little
    protected: bool = False  # degraded one step later than others, and dropped for room after them


PLAIN: Final = StreamShare()


@dataclass(slots=True, eq=False)
class Ticket:
    """One frame on its way through a pipeline. `load` is what it carries, of no interest here."""

    stream: str
    seq: int
    captured_at: float
    deadline: float = math.inf
    size_b: int = 0
    degraded: int = 0  # the highest step of a ladder it was let in at
    fallback: bool = False
    load: Any = None
    facts: Mapping[str, Any] | None = None


class _Lane:
    __slots__ = ("frames", "guarded", "length", "listed", "offers", "part", "spent")

    def __init__(self, share: StreamShare) -> None:
        self.guarded = share.protected
        self.part = 1.0 / share.weight  # what one turn, or one frame that waits, counts
        self.frames: deque[Ticket] = deque()
        self.length = 0.0  # of its line, by weight
        self.spent = 0.0  # turns had, by weight, on the common scale
        self.listed = False  # in the heap
        self.offers = 0  # frames offered while one in so many is wanted


class Lanes:
    """The waiting frames of one stage. Remembers the turns of each stream; an idle one saves none up."""

    def __init__(self, shares: Mapping[str, StreamShare] | None = None) -> None:
        self._shares = dict(shares or {})
        self._lanes: dict[str, _Lane] = {}
        self._turns: list[tuple[float, int, str]] = []
        self._turn = 0.0  # of the stream that was last served
        self._order = 0
        self.depth = 0
        self.size_b = 0

    def share_of(self, stream: str) -> StreamShare:
        """Return the share of a stream; the plain one where none was named."""
        return self._shares.get(stream, PLAIN)

    def depth_of(self, stream: str) -> int:
        """Return how many frames of the stream wait."""
        lane = self._lanes.get(stream)
        return 0 if lane is None else len(lane.frames)

    def depths(self) -> dict[str, int]:
        """Return how many frames wait of each stream that has some."""
        return {name: len(lane.frames) for name, lane in self._lanes.items() if lane.frames}

    def wanted(self, stream: str, every: int) -> bool:
        """Say whether this frame of the stream is the one in `every`; counts it."""
        if every <= 1:
            return True
        lane = self._lane(stream)
        lane.offers += 1
        return lane.offers % every == 1

    def add(self, ticket: Ticket) -> None:
        """Put a frame at the end of its stream's line."""
        lane = self._lane(ticket.stream)
        lane.frames.append(ticket)
        lane.length = len(lane.frames) * lane.part
        self.depth += 1
        self.size_b += ticket.size_b
        if not lane.listed:
            lane.spent = max(lane.spent, self._turn)
            self._list(ticket.stream, lane)

    def next(self) -> Ticket | None:
        """Take the first frame of the stream whose turn it is; None when no frame waits."""
        while self._turns:
            spent, _, stream = heappop(self._turns)
            lane = self._lanes[stream]
            lane.listed = False
            if not lane.frames:  # its frames were dropped for room
                continue
            self._turn = spent
            ticket = self._out(lane, newest=False)
            lane.spent = spent + lane.part
            if lane.frames:
                self._list(stream, lane)
            return ticket
        return None

    def shed(self, stream: str, *, newest: bool) -> Ticket | None:
        """Take out a frame to make room for one of `stream`: the oldest or the newest of the stream that is
        longest for its weight, a protected one last. None when the frame to come is itself the one to go."""
        own = victim = self._lane(stream)
        guarded = own.guarded
        longest = (len(own.frames) + 1) * own.part
        if not (newest or own.frames):  # nothing older of its own: any other's, but none better protected
            longest = 0.0
        for lane in self._lanes.values():
            # Asked of each stream for each frame into a full queue: what is nearly always false goes first.
            # Its own line is never longer than `longest`, nor less guarded than itself.
            if lane.length > longest:
                if lane.guarded <= guarded:
                    victim, guarded, longest = lane, lane.guarded, lane.length
            elif guarded and lane.frames and not lane.guarded:
                victim, guarded, longest = lane, False, lane.length
        if victim is own and (newest or not own.frames):
            return None
        return self._out(victim, newest=newest)

    def clear(self, stream: str) -> list[Ticket]:
        """Take out every frame of one stream."""
        lane = self._lane(stream)
        return [self._out(lane, newest=False) for _ in range(len(lane.frames))]

    def empty(self) -> list[Ticket]:
        """Take out everything, in any order of streams."""
        return [ticket for stream in list(self._lanes) for ticket in self.clear(stream)]

    def oldest_at(self) -> float | None:
        """Return when the oldest waiting frame was captured, None when none waits."""
        return min((lane.frames[0].captured_at for lane in self._lanes.values() if lane.frames), default=None)

    def _out(self, lane: _Lane, *, newest: bool) -> Ticket:
        ticket = lane.frames.pop() if newest else lane.frames.popleft()
        lane.length = len(lane.frames) * lane.part
        self.depth -= 1
        self.size_b -= ticket.size_b
        return ticket

    def _lane(self, stream: str) -> _Lane:
        lane = self._lanes.get(stream)
        if lane is None:
            if len(self._lanes) >= 2 * STREAMS_MAX:
                self._forget()
            lane = self._lanes[stream] = _Lane(self.share_of(stream))
        return lane

    def _forget(self) -> None:
        for name in [name for name, lane in self._lanes.items() if not lane.frames and not lane.listed]:
            del self._lanes[name]

    def _list(self, stream: str, lane: _Lane) -> None:
        self._order += 1
        lane.listed = True
        heappush(self._turns, (lane.spent, self._order, stream))
