"""Inlet: the writing side of a FrameQueue: put, offer, and places that their writer fills."""

from collections.abc import Callable
from typing import Any, Final

from forebay.core.buffer import Accepted, Dropped, OnFull, Reason
from forebay.errors import StreamEndedError
from forebay.streams.attached import Attached
from forebay.streams.blank import Blank
from forebay.streams.channel import wait_any
from forebay.streams.frame import UNBOUNDED_S
from forebay.streams.refusals import FullError
from forebay.streams.slab import ENDED, WAITING
from forebay.streams.watching import DEAD_LOOK_S, look
from forebay.streams.writing import holders

ROOM_SLICE_S: Final = 0.01  # a writer that waits looks so often for room, should a bell be missed


class Inlet(Attached):
    """What a FrameQueue takes in, and how it waits for room."""

    def offer(
        self,
        frame: Any,
        *,
        priority: int = 0,
        captured_at: float | None = None,
        deadline: float | None = None,
    ) -> Accepted | Dropped:
        """Take in the frame or drop it, at once: this never waits for room, whatever the policy.

        `captured_at` and `deadline` are seconds since the epoch. Under `Backoff` a Dropped says when to offer
        the newest frame. Raises InvalidError for what is no frame of this queue, StreamEndedError when over.
        """
        if not self._ready:
            self._open()
        if self._views.due:
            self._views.sweep()
        array = self._writer.check(frame, priority, captured_at, deadline)
        verdict = self._writer.offer(array, priority, captured_at, deadline)
        if verdict is None:
            self._tries += 1
            door = self._writer.door
            waits_s = door.backoff.wait_s(self._tries) if door.on_full is OnFull.BACKOFF else None
            return self._writer.refuse(Reason.FULL, waits_s)
        self._tries = 0
        return verdict

    def put(
        self,
        frame: Any,
        block: bool = True,
        timeout: float | None = None,
        *,
        priority: int = 0,
        captured_at: float | None = None,
        deadline: float | None = None,
        newest: Callable[[], Any] | None = None,
    ) -> Accepted | Dropped:
        """Take in the frame by the policy. `block` and `Backoff` wait for room, `timeout` seconds at most.

        `newest` is asked after a wait for the frame to send in place of the one that waited: both are one
        frame in the counts, captured when asked for. Raises FullError (a queue.Full) when it waited in vain
        or might not wait, and under `reject`; InvalidError, StreamEndedError and ClosedError as `offer` does.
        """
        if not self._ready:
            self._open()
        writer = self._writer
        if self._views.due:
            self._views.sweep()
        array = writer.check(frame, priority, captured_at, deadline)
        verdict = writer.offer(array, priority, captured_at, deadline)
        if verdict is None:
            verdict = self._put_when_room(
                array, block, timeout, priority, captured_at, deadline, newest=newest
            )
        if verdict.__class__ is Dropped:
            self._raise_rejected(verdict)
        return verdict

    def blank(
        self,
        *,
        shape: tuple[int, ...] | None = None,
        dtype: Any = None,
        priority: int = 0,
        captured_at: float | None = None,
        deadline: float | None = None,
        block: bool = True,
        timeout: float | None = None,
    ) -> Blank:
        """Return a place in shared memory for one frame, by the policy as for a `put`: what writes
        its pixels there itself (a decoder, `readinto`, `out=`) spares the copy. It is sent at the end of its
        `with` block. False in a condition where the policy dropped it: `verdict` says why.

        `shape` and `dtype` are the queue's where it has them. It is of now when `captured_at` is left out. An
        unsent place is room that nobody else has. Raises as `put` does.
        """
        if not self._ready:
            self._open()
        if self._views.due:
            self._views.sweep()
        writer = self._writer
        form = writer.check(writer.blank(shape, dtype), priority, captured_at, deadline)
        place = Blank(self._views, priority)
        verdict = writer.offer(form, priority, captured_at, deadline, into=place)
        if verdict is None:
            verdict = self._put_when_room(form, block, timeout, priority, captured_at, deadline, into=place)
        if verdict.__class__ is Dropped:
            self._raise_rejected(verdict)
            place.verdict = verdict
        return place

    def _put_when_room(
        self,
        array: Any,
        block: bool,
        timeout: float | None,
        priority: int,
        captured_at: float | None,
        deadline: float | None,
        *,
        newest: Callable[[], Any] | None = None,
        into: Blank | None = None,
    ) -> Accepted | Dropped:
        """Wait for room, and put. Raises FullError when there was none in time."""
        writer, clock = self._writer, self._ring.clock
        captured = clock.now() if captured_at is None else captured_at
        ends_at = UNBOUNDED_S if timeout is None else clock.now() + max(0.0, timeout)
        tries, verdict = 0, None
        while verdict is None:
            left_s = ends_at - clock.now() if block else 0.0
            if left_s <= 0:
                self._refuse_full(Reason.TIMEOUT if block else Reason.FULL)
            tries += 1
            self._wait_for_room(left_s, tries)
            if newest is not None:
                array, captured = writer.check(newest(), priority), clock.now()
            verdict = writer.offer(array, priority, captured, deadline, into=into)
        return verdict

    def _raise_rejected(self, verdict: Accepted | Dropped) -> None:
        if isinstance(verdict, Dropped) and verdict.reason == Reason.REJECTED.value:
            raise FullError(f"the queue is full: {self._form.maxsize} frames wait{holders(self._ring)}")

    def put_nowait(self, frame: Any) -> Accepted | Dropped:
        """Put without waiting; what waits by its policy raises FullError in place of that."""
        return self.put(frame, block=False)

    def _refuse_full(self, reason: Reason) -> None:
        self._ring.refuse(reason)
        raise FullError(
            f"no room: {self._ring.depth()} of {self._form.maxsize} frames wait{holders(self._ring)}"
        )

    def _wait_for_room(self, left_s: float, tries: int) -> None:
        ring, door = self._ring, self._writer.door
        if ring.clock.now() - self._looked_at > DEAD_LOOK_S:
            look(ring)
            self._looked_at = ring.clock.now()
        if door.on_full is OnFull.BACKOFF:
            wait_any([ring.pipes.end], min(left_s, door.backoff.wait_s(tries)))
        else:
            self._words[WAITING] = 1
            if wait_any([ring.pipes.room, ring.pipes.end], min(left_s, ROOM_SLICE_S)):
                ring.pipes.room.read(512)
        if self._words[ENDED]:
            ring.refuse(Reason.ENDED)
            raise StreamEndedError("the stream ended while a frame waited for room")
