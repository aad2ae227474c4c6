"""form_of: the arguments of a FrameQueue, checked; a mistake is one line with field, rule and value."""

import math
from collections.abc import Iterable
from typing import Any, Final, cast

from forebay.core.buffer import Backoff, Door, positive_s
from forebay.core.units import size_b
from forebay.errors import ConfigError, InvalidError, NoMemoryError
from forebay.host.memory import memory_free_b
from forebay.streams.channel import ENTRIES_MAX
from forebay.streams.slab import DIMENSIONS_MAX, Form

PRIORITIES_MAX: Final = 10
HELD_MAX: Final = 8  # frames that readers may hold before the queue has less room for it
SPARE_SLOTS: Final = 2  # one being filled, one being freed
MEMORY_SHARE: Final = 0.8  # of what is free: the rest is for everybody else


def load_numpy() -> Any:
    """Return numpy. Raises ConfigError that names the extra where it is missing."""
    try:
        import numpy
    except ImportError:
        raise ConfigError("FrameQueue needs numpy: pip install 'forebay[streams]'") from None
    return numpy


def form_of(
    *,
    maxsize: object,
    shape: object,
    dtype: object,
    policy: str | Backoff,
    ttl: object,
    item_bytes_max: object,
    bytes_max: object,
    degrade_at: float | None,
    drop_at: float | None,
    priorities: object,
    held_max: object,
) -> Form:
    """Return the checked form of a queue. Raises InvalidError, and NoMemoryError when it cannot fit."""
    items = _whole("maxsize", maxsize, 1, ENTRIES_MAX)
    Door(policy, items_max=items, degrade_at=degrade_at, drop_at=drop_at)
    extents = None if shape is None else _extents(shape)
    kind = _kind(dtype, extents)
    form = Form(
        maxsize=items,
        slots=items + _whole("held_max", held_max, 1, 1024) + SPARE_SLOTS,
        item_bytes=_item_bytes(extents, kind, item_bytes_max),
        shape=extents,
        dtype=None if kind is None else kind.str,
        policy=policy,
        ttl_s=None if ttl is None else positive_s("ttl", ttl),
        degrade_at=degrade_at,
        drop_at=drop_at,
        priorities=_whole("priorities", priorities, 1, PRIORITIES_MAX),
    )
    _check_fits(form, None if bytes_max is None else _size("bytes_max", bytes_max))
    return form


def _whole(name: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidError(f"{name} must be a whole number from {least} to {most}, not {value!r:.60}")
    return value


def _extents(shape: object) -> tuple[int, ...]:
    lengths = tuple(cast("Iterable[Any]", shape)) if isinstance(shape, tuple | list) else ()
    if not 1 <= len(lengths) <= DIMENSIONS_MAX:
        raise InvalidError(f"shape must be 1 to {DIMENSIONS_MAX} lengths, or None for any, not {shape!r:.60}")
    for length in lengths:
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise InvalidError(f"shape must be whole numbers above 0, not {shape!r:.60}")
    return lengths


def _kind(dtype: object, extents: tuple[int, ...] | None) -> Any:
    """Return the numpy dtype; None where frames of any kind may come."""
    numpy = load_numpy()
    if dtype is None and extents is None:
        return None
    try:
        kind = numpy.dtype("uint8" if dtype is None else dtype)
    except TypeError:
        raise InvalidError(f"dtype must be a kind of number that numpy knows, not {dtype!r:.60}") from None
    check_kind(kind)
    return kind


def check_kind(kind: Any) -> None:
    """Raise InvalidError for a dtype that processes cannot share: objects, records, empty ones."""
    if kind.hasobject or kind.fields is not None or not kind.itemsize or len(kind.str) > 8:
        raise InvalidError(f"dtype must be of plain numbers, not {str(kind)!r:.60}")


def _item_bytes(extents: tuple[int, ...] | None, kind: Any, item_bytes_max: object) -> int:
    most = None if item_bytes_max is None else _size("item_bytes_max", item_bytes_max)
    if extents is None:
        if most is None:
            raise InvalidError("shape=None needs item_bytes_max, the size of the largest frame")
        return most
    size = math.prod(extents) * int(kind.itemsize)
    if most is not None and size > most:
        raise InvalidError(f"item_bytes_max ({most}) is below the {size} bytes of a frame of shape {extents}")
    return size


def _size(name: str, value: object) -> int:
    try:
        size = size_b(value)
    except ValueError as error:
        raise InvalidError(f"{name}: {error}") from None
    if size < 1:
        raise InvalidError(f"{name} must be above zero, not {value!r:.60}")
    return size


def _check_fits(form: Form, bytes_max: int | None) -> None:
    free = memory_free_b()
    limit, what = int(free * MEMORY_SHARE), f"{MEMORY_SHARE:.0%} of the {free:,} bytes that are free here"
    if bytes_max is not None and bytes_max < limit:
        limit, what = bytes_max, f"bytes_max ({bytes_max:,})"
    if form.size <= limit:
        return
    most = (limit - form.table_bytes) // form.stride - (form.slots - form.maxsize)
    fitting = f"the largest maxsize that fits is {most}" if most > 0 else "not even one frame fits"
    raise NoMemoryError(
        f"maxsize={form.maxsize} frames of {form.item_bytes:,} bytes, and {form.slots - form.maxsize} slots"
        f" for those in use, are {form.size:,} bytes, more than {what}: {fitting}",
        limit=limit,
    )
