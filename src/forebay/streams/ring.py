"""Ring: the moves of slots between pipes and this process; each leaves a trace that an audit can finish.

Between taking an entry out of a pipe and marking its slot, a process is inside a critical section: its seat's
OPS word is odd. A few microseconds, no wait, no lock that others need.
"""

import os
import threading
from typing import Final

from forebay.clock import SystemClock
from forebay.core.buffer import Reason
from forebay.core.slots import (
    DOOR_AT,
    INNER_AT,
    SEAT_SHIFT,
    SERVED_AT,
    UNCOUNTED,
    SlotState,
    slots_of,
)
from forebay.errors import UnsupportedError
from forebay.streams.channel import ENTRY_BYTES, Pipe, Pipes
from forebay.streams.seats import CLAIM_WAIT_MAX_S, AuditLock, claim, no_seat
from forebay.streams.slab import (
    ACCEPTED,
    ANCHOR,
    BELL,
    CAPTURED,
    COUNTER,
    COUNTS,
    DEADLINE,
    DEGRADED,
    FLAGS,
    GENERATION,
    OFFERED,
    OPS,
    ORDINAL,
    PID,
    PRIORITY_SHIFT,
    SEQ,
    Slab,
)
from forebay.streams.spares import Spares

_SLOT_MASK: Final = 0xFFFFFFFF
_FREE: Final = int(SlotState.FREE)
_HELD: Final = int(SlotState.HELD)
_QUEUED: Final = int(SlotState.QUEUED)
_TAKEN: Final = int(SlotState.TAKEN)
_SETTLING: Final = int(SlotState.SETTLING)
_LINGERING: Final = int(SlotState.LINGERING)


class Ring:
    """What one process does with the slots of a queue. Safe for threads."""

    def __init__(self, slab: Slab, pipes: Pipes) -> None:
        self.slab = slab
        self.pipes = pipes
        self.clock = SystemClock(slab.times[ANCHOR])
        self.audit_lock = AuditLock(slab)
        self.pending = 0  # slots between our decision and our write
        self.closed = False
        self._work = pipes.work
        self._depth = self.depth if slab.form.priorities > 1 else pipes.work[0].depth
        self._free_slots = pipes.hot
        self._spares = Spares(pipes.hot, pipes.cold, slab.form.item_bytes)
        self._words = slab.words
        self._times = slab.times
        self._row_of = slab.rows
        self._lock = threading.Lock()
        self._seat: int | None = None
        self._base = self._ops = self._mine = 0

    # ---- our seat ---------------------------------------------------------------------------------------

    @property
    def seat(self) -> int:
        """The number of our seat; the first use takes one. Raises UnsupportedError when all are taken."""
        if self._seat is None:
            self._sit()
        assert self._seat is not None
        return self._seat

    def _sit(self) -> None:
        with self.audit_lock.held(CLAIM_WAIT_MAX_S) as got:
            if self._seat is not None:
                return
            number = claim(self.slab) if got else None
        if number is None:
            raise (
                no_seat() if got else UnsupportedError("another process has been auditing this queue for 5 s")
            )
        self._base = self.slab.seat(number)
        self._ops = self._words[self._base + OPS]
        self._mine = number << SEAT_SHIFT
        self._seat = number

    def after_fork(self) -> None:
        """In a forked child: the parent's seat and slots stay the parent's."""
        self.audit_lock.after_fork()
        self._lock = threading.Lock()
        self._seat = None
        self.pending = 0

    def owns(self, slot: int) -> bool:
        """Return whether the slot's frame is in our hands."""
        return self._seat is not None and self._words[self._row_of[slot]] == _TAKEN | self._mine

    def holds(self, slot: int) -> bool:
        """Return whether the slot is ours to fill."""
        return self._seat is not None and self._words[self._row_of[slot]] == _HELD | self._mine

    # ---- writing ----------------------------------------------------------------------------------------

    def depth(self) -> int:
        """Return how many frames wait in the pipes."""
        return sum(pipe.depth() for pipe in self._work)

    def load(self) -> int:
        """Return how many wait or are on their way in; none of ours is seen in both places or in neither."""
        with self._lock:
            return self._depth() + self.pending

    def take_free(self) -> int:
        """Return a free slot, now held by us, the warmest there is (see Spares); -1 when none is free."""
        words = self._words
        with self._lock:
            self._ops = ops = self._ops + 2
            words[self._base + OPS] = ops - 1
            try:
                while entry := self._spares.take():
                    number = int.from_bytes(entry, "little")
                    slot = number & _SLOT_MASK
                    row = self._row_of[slot]
                    if words[row + GENERATION] == number >> 32 and words[row] == _FREE:
                        self._hold(row)
                        return slot
                return -1
            finally:
                words[self._base + OPS] = ops

    def _hold(self, row: int) -> None:
        self._words[row + ORDINAL] = UNCOUNTED
        self._words[row] = _HELD | self._mine
        self.pending += 1

    def evict(self, priority: int, reason: Reason) -> int:
        """Drop the oldest waiting frame of the lowest priority, none more urgent than `priority`.

        Returns its slot, held by us for another frame; -1 when there was none.
        """
        for pipe in self._work[priority:][::-1]:
            slot = self._take_from(pipe)
            if slot >= 0:
                with self._lock:
                    row = self._row_of[slot]
                    self._count(row, COUNTS + INNER_AT[reason])
                    self._words[row + GENERATION] = (self._words[row + GENERATION] + 1) & _SLOT_MASK
                    self._hold(row)
                return slot
        return -1

    def commit(self, slot: int, captured_at: float, deadline: float, degraded: bool, priority: int) -> int:
        """Put a slot of ours, filled, at the end of its priority's pipe; -1 when the kernel has no room.

        Returns the frame's number: those that this seat offered count from 0, the refused ones with them.
        """
        words, row, base = self._words, self._row_of[slot], self._base
        self._times[row + CAPTURED] = captured_at
        self._times[row + DEADLINE] = deadline
        words[row + FLAGS] = priority << PRIORITY_SHIFT | degraded
        with self._lock:
            words[row + SEQ] = seq = words[base + OFFERED]
            words[base + OFFERED] = seq + 1
            accepted = words[base + ACCEPTED]
            words[row + ORDINAL] = accepted
            self._ops = ops = self._ops + 2
            words[base + OPS] = ops - 1
            words[base + ACCEPTED] = accepted + 1
            words[row] = _QUEUED
            number = words[row + GENERATION] << 32 | slot
            done = self._work[priority].write(number.to_bytes(8, "little"))
            words[BELL] = number  # after the write; a hint alone: the kernel wakes who waits at the pipe
            if not done:
                words[row] = _TAKEN | self._mine
            words[base + OPS] = ops
            self.pending -= 1  # after the write: nobody may see the frame in neither
            if degraded and done:
                words[base + DEGRADED] += 1
        if not done:
            self.settle(slot, COUNTS + INNER_AT[Reason.OLDEST])
        return seq if done else -1

    def give_back(self, slot: int) -> None:
        """Free a slot of ours that was never filled."""
        with self._lock:
            self.pending -= 1
            self._free(slot, self._row_of[slot])

    def refuse(self, reason: Reason) -> None:
        """Count a frame that was not taken in."""
        words, at, offered = self._words, self._base + COUNTS + DOOR_AT[reason], self._base + OFFERED
        with self._lock:
            words[at] += 1
            words[offered] += 1

    # ---- reading ----------------------------------------------------------------------------------------

    def take(self) -> int:
        """Return the slot of the next frame, most urgent first, now ours; -1 when none waits."""
        for pipe in self._work:
            if (slot := self._take_from(pipe)) >= 0:
                return slot
        return -1

    def _take_from(self, pipe: Pipe) -> int:
        words = self._words
        with self._lock:
            self._ops = ops = self._ops + 2
            words[self._base + OPS] = ops - 1
            try:
                while True:
                    number = int.from_bytes(os.read(pipe.fd, ENTRY_BYTES), "little")
                    slot = number & _SLOT_MASK
                    row = self._row_of[slot]
                    if words[row + GENERATION] == number >> 32 and words[row] == _QUEUED:
                        words[row] = _TAKEN | self._mine
                        return slot
            except BlockingIOError:
                return -1
            finally:
                words[self._base + OPS] = ops

    def settle(self, slot: int, counter: int = COUNTS + SERVED_AT) -> None:
        """Count what became of a frame in our hands, once, and free its slot; of another's do nothing."""
        words, row, base = self._words, self._row_of[slot], self._base
        at = base + counter
        with self._lock:  # _count and _free, written out: every frame comes here
            if words[row] != _TAKEN | self._mine or self._seat is None:
                return
            words[row + ORDINAL] = count = words[at]
            words[row + COUNTER] = counter
            words[row] = _SETTLING | self._mine
            words[at] = count + 1
            words[row + GENERATION] = generation = (words[row + GENERATION] + 1) & _SLOT_MASK
            self._ops = ops = self._ops + 2
            words[base + OPS] = ops - 1
            words[row] = _FREE
            os.write(self._free_slots.fd, (generation << 32 | slot).to_bytes(8, "little"))
            words[base + OPS] = ops

    def keep(self, slot: int) -> None:
        """Count a frame as served and keep its slot: views of it still live."""
        row = self._row_of[slot]
        with self._lock:
            self._count(row, COUNTS + SERVED_AT)
            self._words[row] = _LINGERING | self._mine

    def let_go(self, slot: int) -> None:
        """Free a slot that was kept."""
        with self._lock:
            self._free(slot, self._row_of[slot])

    def idle(self) -> bool:
        """Return whether no thread is inside a move: such a one may be ours, in a collection."""
        return not self._lock.locked()

    def count_lost(self, row: int) -> None:
        """For an audit: count a frame that nobody has any more, in our seat."""
        with self._lock:
            self._count(row, COUNTS + INNER_AT[Reason.LOST])

    # ---- the one way to end a frame ---------------------------------------------------------------------

    def _count(self, row: int, counter: int) -> None:
        """Count exactly once: who finds the slot SETTLING after our death sees whether we came to count."""
        words = self._words
        at = self._base + counter
        count = words[at]
        words[row + ORDINAL] = count
        words[row + COUNTER] = counter
        words[row] = _SETTLING | self._mine
        words[at] = count + 1

    def _free(self, slot: int, row: int) -> None:
        words = self._words
        words[row + GENERATION] = generation = (words[row + GENERATION] + 1) & _SLOT_MASK
        self._ops = ops = self._ops + 2
        words[self._base + OPS] = ops - 1
        words[row] = _FREE
        self._free_slots.write((generation << 32 | slot).to_bytes(8, "little"))
        words[self._base + OPS] = ops

    # ---- looking, and the end ---------------------------------------------------------------------------

    def free_slots(self) -> int:
        """Return how many slots wait in the pipes to be filled."""
        return self._free_slots.depth() + self.pipes.cold.depth()

    def leave(self) -> None:
        """Give our seat back, unless frames are in our hands: then it is ours until this process ends."""
        if self._seat is None:
            return
        with self._lock:
            words = [self._words[row] for row in self._row_of]
            if not slots_of(words, {self._seat}):
                self._words[self._base + PID] = 0
                self._seat = None
