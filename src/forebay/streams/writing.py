"""Writer: checks a frame, lets the door decide, and copies it into shared memory."""

import os
import threading
from collections import Counter
from typing import Any, Final

from forebay.core.buffer import (
    Accepted,
    Decision,
    Door,
    Dropped,
    Enter,
    Hold,
    OnFull,
    Reason,
    Refuse,
    instant,
)
from forebay.core.slots import SlotState, seat_of, state_of
from forebay.errors import InvalidError, StreamEndedError
from forebay.streams.asked import check_kind
from forebay.streams.audit import audit
from forebay.streams.blank import Blank
from forebay.streams.frame import UNBOUNDED_S, write_form
from forebay.streams.ring import Ring
from forebay.streams.slab import DIMENSIONS_MAX, ENDED, PID

AUDIT_EVERY_S: Final = 0.005  # at most, where no slot is free
_accepted: Final = Accepted._make  # a fifth of the time of Accepted(...), once for every frame


class Writer:
    """The writing side of a queue in one process."""

    def __init__(self, ring: Ring, numpy: Any) -> None:
        form = ring.slab.form
        self._ring = ring
        self._form = form
        self._numpy = numpy
        self._ndarray = numpy.ndarray
        self._shape = form.shape
        self._dtype = None if form.dtype is None else numpy.dtype(form.dtype)
        self._arrays: list[Any] = []
        if form.shape is not None:
            self._arrays = [
                ring.slab.array(numpy, slot, form.shape, self._dtype) for slot in range(form.slots)
            ]
        self.door = Door(
            form.policy, items_max=form.maxsize, degrade_at=form.degrade_at, drop_at=form.drop_at
        )
        self._ttl_s = UNBOUNDED_S if form.ttl_s is None else form.ttl_s
        self._audited_at = 0.0
        self._turn = threading.Lock()

    def check(
        self, frame: Any, priority: int, captured_at: float | None = None, deadline: float | None = None
    ) -> Any:
        """Return the frame as an array of this queue. Raises InvalidError or StreamEndedError, counted."""
        try:
            if self._ring.slab.words[ENDED]:
                raise StreamEndedError("the stream has ended: no frame more is taken in")
            array = frame if isinstance(frame, self._ndarray) else self._as_array(frame)
            if array.shape != self._shape or array.dtype != self._dtype:
                self._check_form(array)
            if priority.__class__ is not int or not 0 <= priority < self._form.priorities:
                raise InvalidError(
                    f"priority must be 0 (most urgent) to {self._form.priorities - 1}, not {priority!r:.60}"
                    " (FrameQueue(priorities=...) says how many there are)"
                )
            if captured_at is not None:
                instant("captured_at", captured_at)
            if deadline is not None:
                instant("deadline", deadline)
        except InvalidError:
            self._ring.refuse(Reason.INVALID)
            raise
        except StreamEndedError:
            self._ring.refuse(Reason.ENDED)
            raise
        return array

    def offer(
        self,
        array: Any,
        priority: int,
        captured_at: float | None,
        deadline: float | None,
        *,
        into: Blank | None = None,
    ) -> Accepted | Dropped | None:
        """Take in a checked frame, or drop it, by the policy; None when the policy waits for room.

        `into` gets the place that the frame would be copied to, and sends it later; its number is -1 then.
        """
        ring = self._ring
        now = ring.clock.now()
        captured = now if captured_at is None else min(captured_at, now)  # a stamp of the future is of now
        due = captured + self._ttl_s
        if deadline is not None:
            due = min(due, deadline)
        if due <= now:
            return self.refuse(Reason.LATE)
        with self._turn:  # threads decide one after the other, so that together they keep the bound
            decision = self.door.decide(ring.load())
            slot, evicted = -1, 0
            if isinstance(decision, Enter) and (decision.evict or (slot := ring.take_free()) < 0):
                slot, evicted, decision = self._slot_for(decision, priority)
        if not isinstance(decision, Enter):
            return None if isinstance(decision, Hold) else self.refuse(decision.reason)
        if into is not None:
            target, degraded = self._target(slot, array), decision.degraded
            into.hold(slot, target, captured_at=captured, due=due, degraded=degraded, evicted=evicted)
            return _accepted((-1, degraded, evicted))
        self._fill(slot, array)
        seq = ring.commit(slot, captured, due, decision.degraded, priority)
        return _accepted((seq, decision.degraded, evicted)) if seq >= 0 else Dropped(Reason.OLDEST.value)

    def refuse(self, reason: Reason, retry_after_s: float | None = None) -> Dropped:
        """Count a frame that is not taken in, and return the verdict on it."""
        self._ring.refuse(reason)
        return Dropped(reason.value, retry_after_s)

    def _slot_for(self, enter: Enter, priority: int) -> tuple[int, int, Decision]:
        """Where no slot is free, or frames must go first: return a slot to fill, how many frames were dropped
        for it, and what is decided at last."""
        slot, evicted = self._evict(enter, priority)
        if slot < 0 and enter.evict and self._is_full_of_urgent():
            return -1, 0, Refuse(Reason.FULL)
        if slot >= 0 or (slot := self._free_slot()) >= 0:
            return slot, evicted, enter
        instead = self.door.no_slot(enter.degraded)
        if not isinstance(instead, Enter):
            return -1, 0, instead
        slot, evicted = self._evict(instead, priority)
        return slot, evicted, instead if slot >= 0 else Refuse(Reason.NO_SLOT)

    def _is_full_of_urgent(self) -> bool:
        """Return whether what waits, none of which could be dropped, leaves no room."""
        return self.door.on_full is OnFull.DROP_OLDEST and self._ring.depth() >= self._form.maxsize

    def after_fork(self) -> None:
        """In a forked child: another thread of the parent may have had its turn."""
        self._turn = threading.Lock()

    def _evict(self, enter: Enter, priority: int) -> tuple[int, int]:
        """Drop as many waiting frames as it says; return a slot of theirs, held, and how many they were."""
        ring, slot, evicted = self._ring, -1, 0
        while evicted < enter.evict and (got := ring.evict(priority, enter.reason)) >= 0:
            if slot >= 0:
                ring.give_back(slot)
            slot, evicted = got, evicted + 1
        return slot, evicted

    def _free_slot(self) -> int:
        ring = self._ring
        slot = ring.take_free()
        if slot < 0 and ring.clock.now() - self._audited_at > AUDIT_EVERY_S:
            audit(ring)
            self._audited_at = ring.clock.now()
            slot = ring.take_free()
        return slot

    def _fill(self, slot: int, array: Any) -> None:
        try:
            target = self._arrays[slot] if self._arrays else self._target(slot, array)
            target[...] = array  # lets other threads run meanwhile
        except BaseException:
            self._ring.give_back(slot)
            raise

    def _target(self, slot: int, array: Any) -> Any:
        """Return the memory of a slot as a new array of the form of `array`."""
        slab = self._ring.slab
        if not self._arrays:
            write_form(slab, slot, array)
        return slab.array(self._numpy, slot, array.shape, array.dtype)

    def blank(self, shape: tuple[int, ...] | None, dtype: Any) -> Any:
        """Return an array of a form that takes no memory, to be checked. Raises InvalidError, counted."""
        numpy, own = self._numpy, self._form
        try:
            if shape is None and own.shape is None:
                raise InvalidError("blank(shape=): this queue takes any shape, so say which")
            kind = numpy.dtype(self._dtype or "uint8") if dtype is None else numpy.dtype(dtype)
            return numpy.broadcast_to(numpy.empty((), kind), own.shape if shape is None else shape)
        except (TypeError, ValueError) as error:
            self._ring.refuse(Reason.INVALID)
            raise InvalidError(f"blank(shape={shape!r:.60}, dtype={dtype!r:.60}): {error}") from None
        except InvalidError:
            self._ring.refuse(Reason.INVALID)
            raise

    def _as_array(self, frame: Any) -> Any:
        if isinstance(frame, bytes | bytearray | memoryview):
            return self._of_bytes(frame)
        if not hasattr(frame, "__array_interface__"):
            raise InvalidError(
                f"a frame is a numpy array or bytes, not {type(frame).__name__} (to end a stream: shutdown())"
            )
        return self._numpy.asarray(frame)

    def _of_bytes(self, frame: Any) -> Any:
        return self._numpy.frombuffer(frame, "uint8") if len(frame) else self._numpy.empty(0, "uint8")

    def _check_form(self, array: Any) -> None:
        form = self._form
        if form.shape is not None and array.shape != form.shape:
            raise InvalidError(
                f"this queue is for frames of shape {form.shape}, not {array.shape}"
                " (shape=None with item_bytes_max takes any)"
            )
        if self._dtype is not None and array.dtype != self._dtype:
            raise InvalidError(f"this queue is for frames of {self._dtype}, not {array.dtype}")
        check_kind(array.dtype)
        if not array.nbytes:
            raise InvalidError(f"a frame of shape {array.shape} has no bytes")
        if array.nbytes > form.item_bytes:
            raise InvalidError(
                f"a frame of {array.nbytes} bytes is larger than item_bytes_max ({form.item_bytes})"
            )
        if not 1 <= array.ndim <= DIMENSIONS_MAX:
            raise InvalidError(f"a frame has 1 to {DIMENSIONS_MAX} dimensions, not {array.ndim}")


def holders(ring: Ring) -> str:
    """Return a sentence on which processes hold how many frames, for the error of a writer that waited."""
    words, slab = ring.slab.words, ring.slab
    states = [words[row] for row in slab.rows]
    held = Counter(
        words[slab.seat(seat_of(word)) + PID]
        for word in states
        if state_of(word) in (SlotState.TAKEN, SlotState.LINGERING)
    )
    if not held:
        return ""
    who = ", ".join(f"process {pid} {count}" for pid, count in sorted(held.items()))
    return f"; readers hold {held.total()} ({who}; this is process {os.getpid()})"
