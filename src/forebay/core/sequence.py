"""Sequence: several workers serve one stream, and their results still leave in the order of its frames."""

from collections import deque
from typing import Any, Final

from forebay.core.lanes import Ticket

_PENDING: Final = object()


class _Place:
    __slots__ = ("result", "ticket")

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.result: Any = _PENDING


class Sequence:
    """The frames that a stage has taken and not yet handed on. Nobody but one caller at a time hands on
    frames of one stream: `done` says who it is."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[_Place]] = {}
        self._places: dict[Ticket, _Place] = {}
        self._handing: set[str] = set()

    def __len__(self) -> int:
        return len(self._places)

    def took(self, ticket: Ticket) -> None:
        """Remember that this frame comes next after those taken before it."""
        place = self._places[ticket] = _Place(ticket)
        self._lines.setdefault(ticket.stream, deque()).append(place)

    def done(self, ticket: Ticket, result: Any) -> bool:
        """Take in what became of a frame. Returns whether the caller is to hand on its stream: `next` until
        that is None."""
        self._places[ticket].result = result
        stream = ticket.stream
        if stream in self._handing or self._lines[stream][0].result is _PENDING:
            return False
        self._handing.add(stream)
        return True

    def next(self, stream: str) -> tuple[Ticket, Any] | None:
        """Return the next frame to hand on and its result; None when the one before it is not done."""
        line = self._lines.get(stream)
        if not line or line[0].result is _PENDING:
            self._handing.discard(stream)
            if line is not None and not line:
                del self._lines[stream]
            return None
        place = line.popleft()
        del self._places[place.ticket]
        return place.ticket, place.result
