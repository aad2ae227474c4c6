"""audit: give back what the dead had: slots in their hands at once, slots lost on the way at a fourth look.
A frame lost by a death, at any instruction, is counted exactly once."""

import threading
from collections.abc import Sequence
from typing import Final

from forebay.core.slots import (
    LOOKS,
    UNCOUNTED,
    SlotState,
    Snapshot,
    moved_on,
    seat_of,
    slots_of,
    state_of,
    strays,
)
from forebay.streams.ring import Ring
from forebay.streams.seats import living
from forebay.streams.slab import ACCEPTED, COUNTER, GENERATION, OPS, ORDINAL, PID, STATE, Slab

GRACE_MAX_S: Final = 0.05  # how long an audit waits for living processes to leave their critical sections
_LOOK_EVERY_S: Final = 0.0005
_LOOKS_A_ROLL_CALL: Final = 10  # among so many looks at the living, one whether they live
_SLOT_MASK: Final = 0xFFFFFFFF


def audit(ring: Ring, *, wait_max_s: float = 0.0) -> int:
    """Give back what dead processes left; return how many slots that were. 0 too when another audits now.

    Waits at most GRACE_MAX_S between two looks, and `wait_max_s` for another auditor.
    """
    if ring.closed or ring.seat < 0:  # what is lost is counted in our seat
        return 0
    with ring.audit_lock.held(wait_max_s) as got:
        if not got:
            return 0
        alive, dead = living(ring.slab)
        freed = _bury(ring, dead) if dead else 0
        return freed + _gather(ring, alive)


def _bury(ring: Ring, dead: list[int]) -> int:
    """Free every slot the dead had, then vacate their seats."""
    words, slab = ring.slab.words, ring.slab
    found = slots_of([words[slab.row(slot) + STATE] for slot in range(slab.form.slots)], set(dead))
    for slot in found:
        _finish(ring, slot)
    for seat in dead:
        words[slab.seat(seat) + PID] = 0
    return len(found)


def _finish(ring: Ring, slot: int) -> None:
    words, row = ring.slab.words, ring.slab.row(slot)
    base = ring.slab.seat(seat_of(words[row + STATE]))
    state, ordinal = state_of(words[row + STATE]), words[row + ORDINAL]
    if state == SlotState.SETTLING:
        at = base + words[row + COUNTER]
        if words[at] == ordinal:  # it died before it came to count
            words[at] = ordinal + 1
    elif state == SlotState.TAKEN or (
        state == SlotState.HELD and ordinal != UNCOUNTED and ordinal < words[base + ACCEPTED]
    ):
        # Ours to count from here on: to count overwrites the ordinal, and we may die before it is done.
        words[row + STATE] += SlotState.TAKEN - state
        ring.count_lost(row)
    _release(ring, slot, row)


def _release(ring: Ring, slot: int, row: int) -> None:
    words = ring.slab.words
    words[row + GENERATION] = generation = (words[row + GENERATION] + 1) & _SLOT_MASK
    words[row + STATE] = int(SlotState.FREE)
    ring.pipes.cold.write((generation << 32 | slot).to_bytes(8, "little"))


def _gather(ring: Ring, alive: list[int]) -> int:
    """Free the slots that are in no pipe and in nobody's hands."""
    looks = [_look(ring)]
    while (found := strays(looks)) and len(looks) < LOOKS:
        if not _quiet(ring, alive):
            return 0
        looks.append(_look(ring))
    for slot in found:
        row = ring.slab.row(slot)
        if state_of(ring.slab.words[row + STATE]) == SlotState.QUEUED:
            ring.count_lost(row)
        _release(ring, slot, row)
    return len(found)


def _look(ring: Ring) -> Snapshot:
    piped: set[int] = set()
    for pipe in (*ring.pipes.work, ring.pipes.cold, ring.pipes.hot):
        piped.update(entry & _SLOT_MASK for entry in pipe.peek(ring.pipes.scratch))
    return Snapshot(_rows_of(ring.slab.words, ring.slab), piped)


def _quiet(ring: Ring, alive: list[int]) -> bool:
    """Return whether, within the grace, every living process was seen outside its critical sections.

    One that dies inside of one moves nothing any more, and is waited for no longer.
    """
    words, slab, pause = ring.slab.words, ring.slab, threading.Event()
    then = {seat: words[slab.seat(seat) + OPS] for seat in alive}
    for look in range(int(GRACE_MAX_S / _LOOK_EVERY_S)):
        if moved_on(list(then.values()), [words[slab.seat(seat) + OPS] for seat in then]):
            return True
        if look % _LOOKS_A_ROLL_CALL == 0:
            for seat in living(slab)[1]:
                then.pop(seat, None)
        pause.wait(_LOOK_EVERY_S)
    return False


def _rows_of(words: Sequence[int], slab: Slab) -> list[tuple[int, int]]:
    """Return (state with seat, generation) of every slot."""
    starts = (slab.row(slot) for slot in range(slab.form.slots))
    return [(words[row + STATE], words[row + GENERATION]) for row in starts]
