"""Range: which bytes of a blob a request asks for (RFC 9110, one range)."""

import re
from typing import NamedTuple

from forebay.errors import RangeError

_RANGE = re.compile(rb"bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.ASCII | re.IGNORECASE)


class Part(NamedTuple):
    """Bytes from `start` up to and without `end`."""

    start: int
    end: int


def part_of(header: bytes | None, size: int) -> Part:
    """Return what is asked for; everything for several ranges, other units and what is no range.

    Raises RangeError for a range that begins behind the end.
    """
    whole = Part(0, size)
    match = None if header is None else _RANGE.fullmatch(header.strip())
    if match is None or (not match[1] and not match[2]):
        return whole
    if not match[1]:  # the last n bytes
        start, end = max(0, size - int(match[2])), size
    else:
        start = int(match[1])
        end = min(size, int(match[2]) + 1) if match[2] else size
        if match[2] and int(match[2]) < start:
            return whole
    if start >= size:
        raise RangeError(f"the blob has {size} bytes", limit=size)
    return Part(start, end)
