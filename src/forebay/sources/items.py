"""Items: frames from user code: any iterable of arrays, bytes or Captured, at a rate if one is given."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from forebay.core.buffer import instant
from forebay.errors import InvalidError
from forebay.sources.asked import frame_rate, stream_name
from forebay.sources.feed import Feed
from forebay.sources.pace import Pace
from forebay.streams.asked import check_kind
from forebay.streams.ports import Captured


class Items(Feed):
    """What `iterable` and `arrays` return."""

    def __init__(
        self, items: Iterable[Any], *, stream: str, fps: float | None, copy: bool, item_bytes_max: int | None
    ) -> None:
        super().__init__("slips")
        self.stream = stream_name(stream)
        self._items = items
        self._pace = Pace(None if fps is None else frame_rate("fps", fps), self.clock, self.closed)
        self._copy = copy
        self.item_bytes_max = item_bytes_max

    def __iter__(self) -> Iterator[Captured]:
        """Return the frames. Raises InvalidError with the number of the one that is none."""
        for number, item in enumerate(self._items):
            slips = self._pace.slips
            if not self._pace.wait():
                return
            self.count("slips", self._pace.slips - slips)
            captured = self._captured(item, number)
            self.count("frames")
            yield captured

    def _captured(self, item: Any, number: int) -> Captured:
        if isinstance(item, Captured):
            return item
        at = self.clock.now()
        if item.__class__ is tuple and len(item) == 2:
            item, at = item[0], instant(f"captured_at of frame {number}", item[1])
        return Captured(checked(item, number, copy=self._copy), self.stream, at)


def checked(item: Any, number: int, *, copy: bool) -> Any:
    """Return the pixels of a frame. Raises InvalidError that says what is wrong with which one."""
    if isinstance(item, bytes | bytearray | memoryview):
        data: Any = cast("Any", item)
        if not len(data):
            raise InvalidError(f"frame {number} has no bytes")
        return bytes(data) if copy else data
    if not hasattr(item, "__array_interface__"):
        raise InvalidError(
            f"frame {number} is a {type(item).__name__}: a frame is a numpy array, bytes,"
            " (frame, captured_at) or Captured"
        )
    import numpy

    array: Any = numpy.asarray(item)
    try:
        check_kind(array.dtype)
    except InvalidError as error:
        raise InvalidError(f"frame {number}: {error}") from None
    if not array.nbytes:
        raise InvalidError(f"frame {number}, of shape {array.shape}, has no bytes")
    return numpy.array(array, order="C", copy=True) if copy else array


def iterable(
    items: Iterable[Any],
    *,
    stream: str = "frames",
    fps: float | None = None,
    copy: bool = False,
    item_bytes_max: int | None = None,
) -> Items:
    """Return a source of what an iterable or a generator of yours gives.

    An item is a numpy array, bytes, a pair (frame, captured_at) or a `Captured`. Of the first two the capture
    is the moment they are given. `fps` holds them to that rate. `copy=True` for a generator that fills one
    buffer again and again. A generator that waits ends, after `close`, with its next item.
    """
    return Items(items, stream=stream, fps=fps, copy=copy, item_bytes_max=item_bytes_max)


def arrays(array: Any, *, stream: str = "frames", fps: float | None = None) -> Items:
    """Return a source of the frames in one array, along its first axis; they are views of it, not copies.

    Raises InvalidError for an array of fewer than two dimensions.
    """
    if getattr(array, "ndim", 0) < 2:
        raise InvalidError(
            f"arrays takes one numpy array of frames along its first axis, of two dimensions or more,"
            f" not {type(array).__name__} of {getattr(array, 'ndim', 0)}"
        )
    return Items(array, stream=stream, fps=fps, copy=False, item_bytes_max=int(array[:1].nbytes) or None)
