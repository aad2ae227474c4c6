"""Frame: one frame in a reader's hands, a view of shared memory until it is released."""

from types import TracebackType
from typing import Any, Final, Self

from forebay.errors import InvalidError
from forebay.streams.slab import (
    CAPTURED,
    DEADLINE,
    DEGRADED_FLAG,
    DIMENSIONS,
    DIMENSIONS_MAX,
    DTYPE,
    FIRST_DIMENSION,
    FLAGS,
    PRIORITY_SHIFT,
    SEQ,
    Slab,
)
from forebay.streams.views import Views

UNBOUNDED_S: Final = float("inf")  # the deadline of a frame that has none


class Frame:
    """What `FrameQueue.get` gives. Use it in a `with` block, or call `release`: its memory is used again.

    `array` is a view, not a copy: keep `frame.array.copy()` of what you need later. A view that still lives
    at the release is never written over: its slot stays taken until the view is gone, and the queue has
    one slot less for as long.
    """

    __slots__ = ("_array", "_slot", "_views", "captured_at", "deadline", "degraded", "priority", "seq")

    def __init__(self, views: Views, slot: int, array: Any) -> None:
        self._views = views
        self._slot = slot
        self._array = array
        slab = views.ring.slab
        row = slab.rows[slot]
        self.seq = slab.words[row + SEQ]
        self.captured_at = slab.times[row + CAPTURED]
        deadline, flags = slab.times[row + DEADLINE], slab.words[row + FLAGS]
        self.deadline = None if deadline == UNBOUNDED_S else deadline
        self.degraded = bool(flags & DEGRADED_FLAG)
        self.priority = flags >> PRIORITY_SHIFT

    @property
    def array(self) -> Any:
        """The frame as a numpy array: a view of shared memory. Raises InvalidError after the release."""
        if self._array is None:
            raise InvalidError(
                f"frame {self.seq} was released: copy what you keep, before the `with` block ends"
            )
        return self._array

    @property
    def age_s(self) -> float:
        """Seconds since it was captured."""
        return max(0.0, self._views.ring.clock.now() - self.captured_at)

    def release(self) -> None:
        """Give the memory back; the second time does nothing, nor does it in a forked copy of the process."""
        array, self._array = self._array, None
        if array is not None:
            self._views.release(self._slot, array)

    def drop_late(self, counter: int) -> None:
        """Give the memory of a frame back that nobody saw, counted as late."""
        self._array = None
        self._views.ring.settle(self._slot, counter)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        array, self._array = self._array, None
        views = self._views
        if array is not None and views.ring.owns(self._slot):
            views.dropped(self._slot, array)
            del array
            views.sweep_if_idle()

    def __repr__(self) -> str:
        state = "released" if self._array is None else f"{self._array.shape} {self._array.dtype}"
        return f"<Frame {self.seq}: {state}>"


def write_form(slab: Slab, slot: int, array: Any) -> None:
    """Note shape and kind of a frame beside it, where frames of a queue may differ."""
    words, row = slab.words, slab.row(slot)
    words[row + DIMENSIONS] = array.ndim
    for number, length in enumerate(array.shape):
        words[row + FIRST_DIMENSION + number] = length
    words[row + DTYPE] = int.from_bytes(array.dtype.str.encode().ljust(8, b"\0"), "little")


def read_form(slab: Slab, slot: int) -> tuple[tuple[int, ...], str]:
    """Return shape and kind of a frame of a queue whose frames may differ."""
    words, row = slab.words, slab.row(slot)
    dimensions = min(words[row + DIMENSIONS], DIMENSIONS_MAX)
    first = row + FIRST_DIMENSION
    kind = words[row + DTYPE].to_bytes(8, "little").rstrip(b"\0").decode()
    return tuple(words[first : first + dimensions].tolist()), kind
