"""Blank: a place in shared memory that its writer fills, so that a frame is not copied at all."""

import sys
from types import TracebackType
from typing import Any, Self

from forebay.core.buffer import Accepted, Dropped, Reason
from forebay.errors import InvalidError
from forebay.streams.views import Views


class Blank:
    """What `FrameQueue.blank` gives: write the pixels into `array`, in a `with` block, or call `send`.

    An exception in the block sends nothing, and so does `cancel`; neither is counted, and the room is given
    back. `verdict` is what `put` would have returned, None until it was sent.

    Not promised: that what is still written into a view of `array` after the sending does not reach a reader.
    """

    __slots__ = (
        "_array",
        "_captured_at",
        "_due",
        "_evicted",
        "_priority",
        "_slot",
        "_views",
        "degraded",
        "verdict",
    )

    def __init__(self, views: Views, priority: int) -> None:
        self._views = views
        self._priority = priority
        self._slot = -1
        self._array: Any = None
        self._captured_at = self._due = 0.0
        self._evicted = 0
        self.degraded = False
        self.verdict: Accepted | Dropped | None = None

    def hold(
        self, slot: int, array: Any, *, captured_at: float, due: float, degraded: bool, evicted: int
    ) -> None:
        """Take the slot that the queue decided on. The queue's own."""
        self._slot, self._array = slot, array
        self._captured_at, self._due = captured_at, due
        self.degraded, self._evicted = degraded, evicted

    def __bool__(self) -> bool:
        """Return whether there is a place to fill."""
        return self._array is not None

    @property
    def array(self) -> Any:
        """The place, as a numpy array: what was there before, until it is written. Raises InvalidError when
        there is none: the policy dropped the frame, or it was sent."""
        if self._array is None:
            why = (
                "it was sent" if not isinstance(self.verdict, Dropped) else f"dropped: {self.verdict.reason}"
            )
            raise InvalidError(f"no place to write a frame ({why})")
        return self._array

    def send(self) -> Accepted | Dropped | None:
        """Put it into the queue as it is filled; return what became of it. Twice is harmless."""
        array, self._array = self._array, None
        ring = self._views.ring
        if array is None or not ring.holds(self._slot):
            return self.verdict
        if sys.getrefcount(array) > 2:  # somebody keeps it: a reader has it now
            array.flags.writeable = False
        seq = ring.commit(self._slot, self._captured_at, self._due, self.degraded, self._priority)
        taken = Accepted(seq, self.degraded, self._evicted)
        self.verdict = taken if seq >= 0 else Dropped(Reason.OLDEST.value)
        return self.verdict

    def cancel(self) -> None:
        """Send nothing and give the place back. After the sending, and twice, it does nothing."""
        array, self._array = self._array, None
        if array is not None and self._views.ring.holds(self._slot):
            self._views.ring.give_back(self._slot)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.send()
        else:
            self.cancel()

    def __del__(self) -> None:
        if self._array is not None and self._views.ring.holds(self._slot):
            self._views.unfilled(self._slot)
