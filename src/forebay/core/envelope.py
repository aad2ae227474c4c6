"""Envelope: a frame or a result as bytes: the length of a header, the header as JSON, and the pixels.

4 bytes, big end first: the length of the header
the header: a JSON object; `shape` and `dtype` say how the pixels are to be read, without them they are bytes
the pixels
"""

import json
import math
import re
from typing import Any, Final, NamedTuple

from forebay.core.buffer import instant
from forebay.errors import InvalidError

HEADER_BYTES_MAX: Final = 8_192
DIMENSIONS_MAX: Final = 6
LENGTH_BYTES: Final = 4
_KIND: Final = re.compile(
    r"[<>|=]?(?:[iu][1248]|f[248]|b1|u?int(?:8|16|32|64)|float(?:16|32|64)|bool)", re.ASCII
)
_SIZE: Final = re.compile(r"[0-9]+")


class Header(NamedTuple):
    """What is known of a frame beside its pixels."""

    shape: tuple[int, ...] | None = None
    dtype: str = "uint8"
    captured_at: float | None = None
    deadline: float | None = None
    seq: int | None = None
    facts: dict[str, Any] | None = None


def pack(header: dict[str, Any]) -> bytes:
    """Return what goes before the pixels. Raises InvalidError for what JSON cannot hold."""
    try:
        text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidError(f"the header of a frame is JSON: {error!s:.200}") from None
    if len(text) > HEADER_BYTES_MAX:
        raise InvalidError(f"the header of a frame has {len(text)} bytes, {HEADER_BYTES_MAX} at most")
    return len(text).to_bytes(LENGTH_BYTES, "big") + text


def unpack(data: bytes | bytearray) -> tuple[dict[str, Any], memoryview]:
    """Return header and pixels, without a copy. Raises InvalidError for what is no envelope."""
    length = int.from_bytes(data[:LENGTH_BYTES], "big")
    if len(data) < LENGTH_BYTES or length > HEADER_BYTES_MAX or len(data) < LENGTH_BYTES + length:
        raise InvalidError(
            f"a frame begins with the length of its header in {LENGTH_BYTES} bytes,"
            f" {HEADER_BYTES_MAX} at most, and {len(data)} bytes do not"
        )
    end = LENGTH_BYTES + length
    return parse(bytes(data[LENGTH_BYTES:end])), memoryview(data)[end:]


def parse(text: bytes) -> dict[str, Any]:
    """Return a header from its JSON. Raises InvalidError."""
    if len(text) > HEADER_BYTES_MAX:
        raise InvalidError(f"the header of a frame has {len(text)} bytes, {HEADER_BYTES_MAX} at most")
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if found.__class__ is not dict:
        raise InvalidError("the header of a frame is a JSON object")
    header: dict[str, Any] = found
    return header


def header_of(found: dict[str, Any], size: int) -> Header:
    """Return a checked header of pixels of so many bytes. Raises InvalidError that names the field."""
    unknown = sorted(set(found) - set(Header._fields))
    if unknown:
        raise InvalidError(f"the header of a frame has {', '.join(Header._fields)}, not {unknown[0]!r:.60}")
    facts, seq, kind = found.get("facts"), found.get("seq"), found.get("dtype", "uint8")
    if facts is not None and not isinstance(facts, dict):
        raise InvalidError(f"facts must be a JSON object, not {facts!r:.60}")
    if seq is not None and (type(seq) is not int or not 0 <= seq < 2**63):
        raise InvalidError(f"seq must be a whole number from 0, not {seq!r:.60}")
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise InvalidError(f'dtype must be a kind of plain numbers, "uint8" or "<f4", not {kind!r:.60}')
    if not size:
        raise InvalidError("a frame has no bytes")
    shape = found.get("shape")
    return Header(
        shape=None if shape is None else _shape(shape, kind, size),
        dtype=kind,
        captured_at=_instant(found, "captured_at"),
        deadline=_instant(found, "deadline"),
        seq=seq,
        facts=facts,
    )


def _instant(found: dict[str, Any], name: str) -> float | None:
    value = found.get(name)
    return None if value is None else instant(name, value)


def _shape(shape: Any, kind: str, size: int) -> tuple[int, ...]:
    lengths: list[Any] = list(shape) if shape.__class__ is list else []
    if not 1 <= len(lengths) <= DIMENSIONS_MAX or not all(
        type(n) is int and 1 <= n <= 2**31 for n in lengths
    ):
        raise InvalidError(f"shape must be 1 to {DIMENSIONS_MAX} whole numbers above 0, not {shape!r:.60}")
    needed = math.prod(lengths) * _width(kind)
    if needed != size:
        raise InvalidError(f"shape {lengths} of {kind} is {needed} bytes, and the frame has {size}")
    return tuple(lengths)


def _width(kind: str) -> int:
    """Return bytes of one number: names count bits, codes count bytes."""
    if kind == "bool":
        return 1
    found = _SIZE.search(kind)
    number = int(found[0]) if found is not None else 1
    return number // 8 if kind.startswith(("int", "uint", "float")) else number
