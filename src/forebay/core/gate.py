"""Gate: what becomes of a frame at one stage of a pipeline, and which frames are served next, with reasons.

The same object decides in the pipeline and in the simulator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from forebay.core.buffer import Backoff, Door, Enter, Hold, OnFull, Reason
from forebay.core.ladder import Ladder, Step
from forebay.core.lanes import Lanes, StreamShare, Ticket

_UNBOUNDED_B: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class GateTerms:
    """The bounds of one stage's queue."""

    items_max: int
    policy: str | Backoff = "block"
    bytes_max: int | None = None
    drop_at: float | None = None
    ladder: tuple[Step, ...] = ()


class Let(NamedTuple):
    """The verdict on one frame. Neither in nor with a reason: it waits for room.

    `shed` are frames that had to go for it, each with its reason.
    """

    entered: bool
    reason: Reason | None = None
    shed: tuple[tuple[Ticket, Reason], ...] = ()


class Taken(NamedTuple):
    """Frames to serve now, and those that waited past their deadline."""

    frames: list[Ticket]
    late: list[Ticket]


_IN: Final = Let(True)
_HOLD: Final = Let(False)
_OUT: Final = {reason: Let(False, reason) for reason in Reason}


class Gate:
    """The bounded queue of a stage. Bounds hold for items and bytes together, at every instant."""

    def __init__(self, terms: GateTerms, shares: Mapping[str, StreamShare] | None = None) -> None:
        self.terms = terms
        self.lanes = Lanes(shares)
        self.door = Door(terms.policy, items_max=terms.items_max, drop_at=terms.drop_at)
        self._ladder = Ladder(terms.ladder)
        self._bytes_max = _UNBOUNDED_B if terms.bytes_max is None else terms.bytes_max
        self.level = 0  # the step it is on

    @property
    def depth(self) -> int:
        """Frames that wait."""
        return self.lanes.depth

    @property
    def size_b(self) -> int:
        """Bytes that wait."""
        return self.lanes.size_b

    def fullness(self) -> float:
        """Return which share of its capacity is taken, in items or in bytes, whichever is more."""
        return max(self.lanes.depth / self.terms.items_max, self.lanes.size_b / self._bytes_max)

    def offer(self, ticket: Ticket, *, now: float) -> Let:
        """Take in the frame or say why not; may drop others for it."""
        if ticket.deadline <= now:
            return _OUT[Reason.LATE]
        if ticket.size_b > self._bytes_max:
            return _OUT[Reason.INVALID]
        level = self._level_for(ticket)
        if level and not self.lanes.wanted(ticket.stream, self._ladder.step(level).every):
            return _OUT[Reason.DECIMATED]
        let = self._through_door(ticket)
        if let.entered:
            if level:
                ticket.degraded = max(ticket.degraded, level)
            self.lanes.add(ticket)
        return let

    def step_of(self, ticket: Ticket) -> Step:
        """Return the step of this gate's ladder that the frame was let in at."""
        return self._ladder.step(min(ticket.degraded, len(self._ladder.steps)))

    def take(self, most: int, *, now: float) -> Taken:
        """Take up to so many frames, the streams by turns. Late ones are not among them."""
        frames: list[Ticket] = []
        late: list[Ticket] = []
        while len(frames) < most and (ticket := self.lanes.next()) is not None:
            (late if ticket.deadline <= now else frames).append(ticket)
        if self._ladder.steps:
            self.level = self._ladder.see(self.fullness())
        return Taken(frames, late)

    def room(self) -> int:
        """Return how many frames have room, by items, before one costs another or waits."""
        if self.lanes.size_b >= self._bytes_max:
            return 0
        return max(0, self.door.crowded_from - self.lanes.depth)

    def _level_for(self, ticket: Ticket) -> int:
        if not self._ladder.steps:
            return 0
        self.level = self._ladder.see(self.fullness())
        protected = self.lanes.share_of(ticket.stream).protected
        return max(0, self.level - 1) if protected else self.level

    def _through_door(self, ticket: Ticket) -> Let:
        lanes, policy = self.lanes, self.door.on_full
        if policy is OnFull.LATEST_ONLY and lanes.depth_of(ticket.stream):
            shed = [(one, Reason.REPLACED) for one in lanes.clear(ticket.stream)]
            return self._make_room(ticket, shed, newest=False)
        crowded = lanes.size_b + ticket.size_b > self._bytes_max
        decision = self.door.decide(max(lanes.depth, self.terms.items_max) if crowded else lanes.depth)
        if isinstance(decision, Hold):
            return _HOLD
        if policy is OnFull.LATEST_ONLY:
            return self._make_room(ticket, [], newest=False)
        if isinstance(decision, Enter):
            return self._make_room(ticket, [], newest=False) if decision.evict else _IN
        if decision.reason in (Reason.FULL, Reason.WATERMARK) and policy is OnFull.DROP_NEWEST:
            return self._newest_out(ticket, decision.reason)
        return _OUT[decision.reason]

    def _make_room(self, ticket: Ticket, shed: list[tuple[Ticket, Reason]], *, newest: bool) -> Let:
        """Drop what is oldest where it is least missed, until the frame fits; or the frame itself."""
        while self._over(ticket):
            victim = self.lanes.shed(ticket.stream, newest=newest)
            if victim is None:
                return Let(False, Reason.FULL, tuple(shed))
            shed.append((victim, Reason.OLDEST))
        return Let(True, None, tuple(shed)) if shed else _IN

    def _newest_out(self, ticket: Ticket, reason: Reason) -> Let:
        """Drop the newest: of the stream that holds most for its weight, which may be this one."""
        shed: list[tuple[Ticket, Reason]] = []
        while self._over(ticket):
            victim = self.lanes.shed(ticket.stream, newest=True)
            if victim is None:
                return Let(False, reason, tuple(shed))
            shed.append((victim, reason))
        return Let(True, None, tuple(shed))

    def _over(self, ticket: Ticket) -> bool:
        lanes = self.lanes
        return lanes.depth >= self.door.crowded_from or lanes.size_b + ticket.size_b > self._bytes_max


def bytes_needed(gates: Sequence[GateTerms], item_b: int) -> int:
    """Return the most bytes that frames of one size take while they wait at all of these stages."""
    return sum(
        terms.items_max * item_b
        if terms.bytes_max is None
        else min(terms.items_max * item_b, terms.bytes_max)
        for terms in gates
    )
