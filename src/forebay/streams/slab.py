"""Slab: the shared memory of one queue: a header, a row for each seat, a row for each slot, and the frames.

All rows are words of eight bytes, each written by one store: a reader never sees half of one.
"""

import contextlib
import mmap
from dataclasses import dataclass
from typing import Any, Final

from forebay.core.buffer import Backoff
from forebay.core.slots import COUNTERS
from forebay.streams.machine import Place, open_place

_POPULATE_READ: Final = 22  # MADV_POPULATE_READ
WORD: Final = 8
ALIGN_BYTES: Final = 64

# The header.
ENDED, WAITING, ANCHOR, CREATOR, BELL = range(5)
HEADER_WORDS: Final = 64

# A seat: one process.
SEATS_MAX: Final = 128
PID, STARTED, OPS, OFFERED, ACCEPTED, DEGRADED, COUNTS = 0, 1, 2, 3, 4, 5, 6
SEAT_WORDS: Final = 32
assert COUNTS + len(COUNTERS) <= SEAT_WORDS

# A slot; the second half of the row is the form of a frame where frames may differ.
STATE, GENERATION, ORDINAL, COUNTER, SEQ, CAPTURED, DEADLINE, FLAGS = range(8)
DIMENSIONS, FIRST_DIMENSION, DTYPE = 8, 9, 15
SLOT_WORDS: Final = 16
DIMENSIONS_MAX: Final = DTYPE - FIRST_DIMENSION

DEGRADED_FLAG: Final = 1
PRIORITY_SHIFT: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a queue was made for; the same in every process that has it."""

    maxsize: int
    slots: int
    item_bytes: int
    shape: tuple[int, ...] | None
    dtype: str | None  # None with shape None: any
    policy: str | Backoff
    ttl_s: float | None
    degrade_at: float | None
    drop_at: float | None
    priorities: int

    @property
    def stride(self) -> int:
        """Bytes from one frame to the next."""
        return -(-self.item_bytes // ALIGN_BYTES) * ALIGN_BYTES

    @property
    def table_bytes(self) -> int:
        """Bytes before the first frame."""
        words = HEADER_WORDS + SEATS_MAX * SEAT_WORDS + self.slots * SLOT_WORDS
        return -(-words * WORD // mmap.PAGESIZE) * mmap.PAGESIZE

    @property
    def size(self) -> int:
        """Bytes of it all."""
        return self.table_bytes + self.slots * self.stride


class Slab:
    """The memory as this process sees it: `words` and `times` are the same rows as integers and as floats."""

    __slots__ = ("form", "map", "place", "rows", "times", "words")

    def __init__(self, form: Form, place: Place) -> None:
        self.form = form
        self.place = place
        self.map = mmap.mmap(place.fd, form.size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        rows = memoryview(self.map)[: form.table_bytes]
        self.words = rows.cast("Q")
        self.times = rows.cast("d")
        self.rows = [self.row(slot) for slot in range(form.slots)]

    @classmethod
    def create(cls, form: Form) -> "Slab":
        """Return new memory, all slots free. Raises NoMemoryError when no place has it."""
        return cls(form, open_place(form.size))

    def populate(self) -> None:
        """Map in one call what is in memory already: a forked process begins with nothing mapped, and a fault
        for each page makes the first copy into a slot take three times as long as the next."""
        with contextlib.suppress(OSError):  # Linux before 5.14: then it faults
            self.map.madvise(_POPULATE_READ)

    def seat(self, number: int) -> int:
        """Return where the row of a seat begins."""
        return HEADER_WORDS + number * SEAT_WORDS

    def row(self, slot: int) -> int:
        """Return where the row of a slot begins."""
        return HEADER_WORDS + SEATS_MAX * SEAT_WORDS + slot * SLOT_WORDS

    def offset(self, slot: int) -> int:
        """Return where the slot's frame begins, in bytes."""
        return self.form.table_bytes + slot * self.form.stride

    def array(self, numpy: Any, slot: int, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return the slot's memory as an array; no copy."""
        return numpy.ndarray(shape, dtype, self.map, self.offset(slot))
