"""FrameQueue: a bounded queue of frames between processes, in the place of multiprocessing.Queue."""

from collections import Counter
from typing import Any, Final

from forebay.core.buffer import Backoff, Reason
from forebay.core.slots import INNER_AT
from forebay.errors import StreamEndedError
from forebay.streams.asked import form_of
from forebay.streams.audit import audit
from forebay.streams.channel import wait_any
from forebay.streams.counting import FrameCounts, count
from forebay.streams.frame import UNBOUNDED_S, Frame, read_form
from forebay.streams.inlet import Inlet
from forebay.streams.machine import check_system
from forebay.streams.opening import create
from forebay.streams.refusals import EmptyError
from forebay.streams.seats import CLAIM_WAIT_MAX_S
from forebay.streams.slab import BELL, COUNTS, ENDED, WAITING
from forebay.streams.watching import DEAD_LOOK_S, look

CLOSE_WAIT_MAX_S: Final = 1.0
_LATE: Final = COUNTS + INNER_AT[Reason.LATE]


class FrameQueue(Inlet):
    """A bounded queue of frames between the processes of one machine.

    Any process that has it may put and get. It goes to a `multiprocessing.Process` as an argument, by fork,
    spawn or forkserver. A frame is copied once, into shared memory, and read there. Whoever is killed, at any
    instruction, leaves no lock behind, and its slots come back.

    `maxsize`: frames that may wait (for a moment one more for each further process that writes).
    `shape`, `dtype`: of every frame; `shape=None` takes any up to `item_bytes_max`.
    `policy`, when it is full: `block`, `Backoff(...)`, `drop_newest`, `drop_oldest`, `latest_only`, `reject`.
    `ttl`: a frame older than this, from its capture, is dropped and not served.
    `degrade_at`, `drop_at`: shares of `maxsize` from which frames are flagged `degraded`, or cost a frame.
    `bytes_max`: the memory it may take; without it, 80 % of what is free. All of it is allocated at once.
    `priorities`: how many there are; 0 is the most urgent. `held_max`: frames that readers hold at a time.

    Not promised: order between writers, order among readers, a frame once its reader has died.
    """

    def __init__(
        self,
        maxsize: int,
        *,
        shape: tuple[int, ...] | None = None,
        dtype: Any = None,
        policy: str | Backoff = "block",
        ttl: str | float | None = None,
        item_bytes_max: str | int | None = None,
        degrade_at: float | None = None,
        drop_at: float | None = None,
        bytes_max: str | int | None = None,
        priorities: int = 1,
        held_max: int = 8,
    ) -> None:
        check_system()
        form = form_of(
            maxsize=maxsize,
            shape=shape,
            dtype=dtype,
            policy=policy,
            ttl=ttl,
            item_bytes_max=item_bytes_max,
            bytes_max=bytes_max,
            degrade_at=degrade_at,
            drop_at=drop_at,
            priorities=priorities,
            held_max=held_max,
        )
        self._attach(*create(form))

    # ---- reading ----------------------------------------------------------------------------------------

    def get(self, block: bool = True, timeout: float | None = None) -> Frame:
        """Return the next frame, the oldest of the most urgent. Those past their deadline are dropped here.
        Waits `timeout` seconds at most, for ever without one.

        Raises EmptyError (a queue.Empty) when none came, StreamEndedError when none will come any more.
        """
        if not self._ready:
            self._open()
        ring = self._ring
        if self._views.due:
            self._views.sweep()
        ends_at = UNBOUNDED_S if timeout is None else ring.clock.now() + max(0.0, timeout)
        heard = False
        while True:
            seen = self._words[BELL]  # before the pipe: what comes in after that has changed it
            slot = ring.take()
            if slot >= 0:
                if heard:
                    self._eager.paid()
                if self._words[WAITING]:
                    self._wake_writers()
                frame = Frame(self._views, slot, self._view(slot))
                if frame.deadline is None or frame.deadline > ring.clock.now():
                    return frame
                frame.drop_late(_LATE)
                continue
            if self._words[ENDED] and not ring.depth():
                raise StreamEndedError("the stream has ended and every frame was taken")
            left_s = ends_at - ring.clock.now() if block else 0.0
            if left_s <= 0:
                raise EmptyError("no frame waits" if not block else f"no frame came in {timeout} s")
            heard = not heard and self._eager.hears(seen)
            if not heard and not wait_any([*ring.pipes.work, ring.pipes.end], min(left_s, DEAD_LOOK_S)):
                look(ring)

    def _wake_writers(self) -> None:
        # A quarter of the room at a time: else writer and reader take turns, a switch for every frame.
        if self._ring.depth() <= self._wake_below:
            self._words[WAITING] = 0
            self._ring.pipes.room.write(b"\0" * 8)

    def get_nowait(self) -> Frame:
        """Return the next frame if one waits; raises EmptyError otherwise."""
        return self.get(block=False)

    def _view(self, slot: int) -> Any:
        slab = self._ring.slab
        if self._shape is not None:
            return self._ndarray(self._shape, self._dtype, slab.map, self._offsets[slot])
        shape, kind = read_form(slab, slot)
        return slab.array(self._numpy, slot, shape, self._numpy.dtype(kind))

    # ---- looking ----------------------------------------------------------------------------------------

    @property
    def maxsize(self) -> int:
        """Frames that may wait."""
        return self._form.maxsize

    @property
    def transport(self) -> str:
        """Where the frames are: `memfd`, `shm` (/dev/shm) or `file` (the directory of temporary files)."""
        return self._ring.slab.place.kind

    @property
    def size_bytes(self) -> int:
        """Bytes of memory the queue takes, all of them from the beginning."""
        return self._form.size

    @property
    def dropped(self) -> "Counter[str]":
        """Frames that were not served, by reason, in all processes; a reason that was not met counts 0."""
        return self.counts().dropped

    def counts(self) -> FrameCounts:
        """Return all counts, those of the dead with them."""
        return count(self._ring)

    @property
    def slots(self) -> int:
        """Frames that fit in memory: those that may wait, those in readers' hands, and two."""
        return self._form.slots

    def slots_free(self) -> int:
        """Return how many slots are free now. When nothing moves, the rest are queued, held or lingering."""
        return self._ring.free_slots()

    def qsize(self) -> int:
        """Return how many frames wait now, as the kernel counts them."""
        return self._ring.depth()

    def empty(self) -> bool:
        """Return whether no frame waits now."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Return whether `maxsize` frames wait now."""
        return self.qsize() >= self._form.maxsize

    def audit(self) -> int:
        """Give back now what dead processes left, and return how many slots that were. Waits at most 5 s for
        another audit; 0 then too.

        Done by itself too: by the creator on a timer, by writers that find no slot, by readers that wait.
        """
        self._open()
        return audit(self._ring, wait_max_s=CLAIM_WAIT_MAX_S)

    # ---- the end ----------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """End the stream for all processes: nothing more is taken in, what waits can be got, and readers then
        hear StreamEndedError. The second time does nothing."""
        self._open()
        if not self._words[ENDED]:
            self._words[ENDED] = 1
            self._ring.pipes.end.write(b"\0" * 8)

    def close(self) -> None:
        """Leave the queue in this process; others go on. Frames in your hands stay valid until released.
        Once more does nothing."""
        ring = self._ring
        if ring.closed:
            return
        if self._watch is not None:
            self._watch.stop()
        ring.closed = True
        self._ready = False
        with ring.audit_lock.held(CLOSE_WAIT_MAX_S):  # not in the middle of an audit of our own
            self._views.sweep()
            ring.leave()

    def join_thread(self) -> None:
        """Return: no thread holds frames back here, put has done all when it returns."""

    def cancel_join_thread(self) -> None:
        """Return, for the same reason."""

    def __repr__(self) -> str:
        shape = "any shape" if self._form.shape is None else f"{self._form.shape} {self._form.dtype}"
        return f"<FrameQueue maxsize={self._form.maxsize} {shape}>"
