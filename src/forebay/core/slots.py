"""The life of a slot, and what an audit gives back: slots of the dead, and slots that no pipe and nobody has.

    FREE ─► HELD ─► QUEUED ─► TAKEN ─► SETTLING ─► FREE
                                          └─► LINGERING (served, a view of it is still alive) ─► FREE

A slot is FREE or QUEUED in a pipe; in every other state one seat (one process) has it.
"""

from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from forebay.core.buffer import Reason

SEAT_SHIFT: Final = 8
STATE_MASK: Final = 0xFF
UNCOUNTED: Final = (1 << 63) - 1  # as the ordinal of a slot: its frame was not counted as accepted yet

# Each seat counts on its own; nobody else writes there while it lives. Frames refused at the door were never
# accepted; what was accepted ends as served or under one of the inner reasons.
SERVED: Final = "served"
AT_DOOR: Final = tuple(
    Reason(name)
    for name in ("full", "watermark", "no_slot", "timeout", "rejected", "invalid", "ended", "late")
)
INNER: Final = tuple(Reason(name) for name in ("oldest", "replaced", "late", "lost"))
COUNTERS: Final = (
    SERVED,
    *(f"door:{one.value}" for one in AT_DOOR),
    *(f"inner:{one.value}" for one in INNER),
)
SERVED_AT: Final = 0
DOOR_AT: Final = {reason: 1 + number for number, reason in enumerate(AT_DOOR)}
INNER_AT: Final = {reason: 1 + len(AT_DOOR) + number for number, reason in enumerate(INNER)}


class SlotState(IntEnum):
    """Where a slot is in its life."""

    FREE = 0
    HELD = 1
    QUEUED = 2
    TAKEN = 3
    SETTLING = 4
    LINGERING = 5


LOOKS: Final = 4  # see `strays`
_IN_A_PIPE: Final = (SlotState.FREE, SlotState.QUEUED)


class Snapshot(NamedTuple):
    """All slots at one look: (state with seat, generation) of each, and which were in a pipe."""

    rows: Sequence[tuple[int, int]]
    piped: Collection[int]


def state_of(word: int) -> int:
    """Return the state in a slot's state word, as a number of SlotState."""
    return word & STATE_MASK


def seat_of(word: int) -> int:
    """Return the seat in a slot's state word."""
    return word >> SEAT_SHIFT


def slots_of(words: Sequence[int], seats: Collection[int]) -> list[int]:
    """Return the slots that these seats have. A free or queued slot is nobody's."""
    return [
        slot for slot, word in enumerate(words) if state_of(word) not in _IN_A_PIPE and seat_of(word) in seats
    ]


def strays(looks: Sequence[Snapshot]) -> list[int]:
    """Return the slots that should be in a pipe and were in none at every look, unchanged all the while.

    Such a slot is nobody's if there were LOOKS looks, and between each two every living seat was seen outside
    its critical sections. A slot can be on its way at a look and its row not tell: into the pipe of the slots
    just freed, from there to the other, out of that to be marked. Three times at most; then its row changes.
    """
    first = looks[0]
    return [
        slot
        for slot, row in enumerate(first.rows)
        if state_of(row[0]) in _IN_A_PIPE
        and all(slot not in look.piped and look.rows[slot] == row for look in looks)
    ]


def moved_on(before: Sequence[int], now: Sequence[int]) -> bool:
    """Return whether every seat has left the critical section it was in: even is outside, odd inside."""
    return all(then % 2 == 0 or then != seen for then, seen in zip(before, now, strict=True))
