"""Tensors of the Open Inference Protocol: nested lists, flat ones and little-endian bytes; no numpy."""

import base64
import json
import math
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

ELEMENTS_MAX: Final = 16_777_216
RANK_MAX: Final = 16
_FORMATS: Final = {
    "BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b", "INT16": "h",
    "INT32": "i", "INT64": "q", "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip


class Tensor(NamedTuple):
    """One tensor: its elements in a row, in the order of its shape."""

    name: str
    kind: str
    shape: list[int]
    flat: list[Any]

    def nested(self) -> Any:
        """Return it as lists in lists; of no dimension its one element."""
        rows: list[Any] = self.flat
        for size in reversed(self.shape[1:]):
            rows = [rows[at : at + size] for at in range(0, len(rows), size)] if size else []
        return rows if self.shape else (self.flat or [None])[0]

    def value(self) -> Any:
        """Return it as lists in lists; one element alone as that element."""
        return self.flat[0] if len(self.flat) == 1 and math.prod(self.shape) == 1 else self.nested()


def read_nested(name: str, kind: str, shape: list[int], data: Any) -> Tensor:
    """Return a tensor from JSON, flat or in lists. Raises ValueError when it does not fill its shape."""
    flat: list[Any] = []
    _flatten(data, flat, 0)
    return _checked(Tensor(name, kind, shape, flat))


def read_binary(name: str, kind: str, shape: list[int], raw: bytes) -> Tensor:
    """Return a tensor from bytes. Raises ValueError when they do not fill its shape."""
    count = _count(shape)
    if kind == "BYTES":
        return _checked(Tensor(name, kind, shape, _texts(raw, count)))
    form = _FORMATS.get(kind)
    if form is None:
        raise ValueError(f"datatype {kind[:20]!r} is none of {', '.join([*_FORMATS, 'BYTES'])}")
    if len(raw) != count * struct.calcsize(f"<{form}"):
        raise ValueError(f"{len(raw)} bytes do not fill {count} of {kind}")
    return Tensor(name, kind, shape, list(struct.unpack(f"<{count}{form}", raw)))


def write_binary(tensor: Tensor) -> bytes:
    """Return the bytes of a tensor."""
    if tensor.kind == "BYTES":
        texts = [one.encode() if isinstance(one, str) else bytes(one) for one in tensor.flat]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return struct.pack(f"<{len(tensor.flat)}{_FORMATS[tensor.kind]}", *tensor.flat)


def of_value(name: str, value: Any) -> Tensor:
    """Return an output as a tensor: numbers as they are, the rest as BYTES: texts, or JSON of the items."""
    shape = _shape(value)
    flat: list[Any] = []
    _flatten(value, flat, 0, len(shape))
    if flat and all(isinstance(one, bool) for one in flat):
        return Tensor(name, "BOOL", shape or [1], flat)
    if (
        flat
        and all(isinstance(one, int) and -(2**63) <= one < 2**63 for one in flat)
        and not _has(flat, bool)
    ):
        return Tensor(name, "INT64", shape or [1], flat)
    if flat and all(isinstance(one, int | float) for one in flat) and not _has(flat, bool):
        return Tensor(name, "FP64", shape or [1], [float(one) for one in flat])
    texts = [one if isinstance(one, str) else json.dumps(one) for one in flat]
    return Tensor(name, "BYTES", shape or [1], texts)


def _has(flat: list[Any], kind: type) -> bool:
    return any(isinstance(one, kind) for one in flat)


def _shape(value: Any) -> list[int]:
    """Return the sizes of lists in lists as far as all of one depth are equally long."""
    shape: list[int] = []
    level = [value]
    while level and all(isinstance(one, list) for one in level) and len({len(one) for one in level}) == 1:
        if len(shape) == RANK_MAX or not level[0]:
            break
        shape.append(len(level[0]))
        level = [item for one in level for item in one]
    return shape


def _flatten(value: Any, flat: list[Any], depth: int, most: int = RANK_MAX) -> None:
    if isinstance(value, list) and depth < most:
        for one in cast("Sequence[Any]", value):
            _flatten(one, flat, depth + 1, most)
    elif len(flat) >= ELEMENTS_MAX:
        raise ValueError(f"more than {ELEMENTS_MAX:,} elements")
    else:
        flat.append(value)


def _checked(tensor: Tensor) -> Tensor:
    count = _count(tensor.shape)
    if len(tensor.flat) != count:
        raise ValueError(f"{len(tensor.flat)} elements do not fill the shape {tensor.shape}")
    return tensor


def _count(shape: list[int]) -> int:
    if len(shape) > RANK_MAX or any(size < 0 for size in shape):
        raise ValueError(f"a shape has up to {RANK_MAX} sizes, none below 0")
    count = math.prod(shape)
    if count > ELEMENTS_MAX:
        raise ValueError(f"more than {ELEMENTS_MAX:,} elements")
    return count


def _texts(raw: bytes, count: int) -> list[Any]:
    """Return the elements of BYTES: each has its length before it. What is no text is base64."""
    found: list[Any] = []
    at = 0
    while at + 4 <= len(raw) and len(found) < count:
        (size,) = struct.unpack_from("<I", raw, at)
        part = raw[at + 4 : at + 4 + size]
        if len(part) != size:
            raise ValueError("an element is longer than its bytes")
        try:
            found.append(part.decode())
        except UnicodeDecodeError:
            found.append(base64.b64encode(part).decode())
        at += 4 + size
    if at != len(raw):
        raise ValueError("bytes are left over, or missing")
    return found
