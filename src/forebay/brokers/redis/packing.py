"""pack(): MessagePack as the server's Lua reads it: bytes are written as texts, it knows nothing else."""

import struct
from typing import Any, cast

_FLOAT = struct.Struct(">Bd")
_INT = struct.Struct(">Bq")
_LONG = struct.Struct(">BI")


def pack(value: Any) -> bytes:
    """Return a value of None, bools, numbers, texts, bytes, lists, tuples and mappings with texts as keys."""
    parts: list[bytes] = []
    _add(parts, value)
    return b"".join(parts)


def _add(parts: list[bytes], value: Any) -> None:
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        size = len(value)
        parts.append(bytes((0xA0 | size,)) if size < 32 else _LONG.pack(0xDB, size))
        parts.append(value)
    elif value is None:
        parts.append(b"\xc0")
    elif value is True or value is False:
        parts.append(b"\xc3" if value else b"\xc2")
    elif isinstance(value, int):
        parts.append(bytes((value,)) if 0 <= value < 128 else _INT.pack(0xD3, value))
    elif isinstance(value, float):
        parts.append(_FLOAT.pack(0xCB, value))
    elif isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        parts.append(_LONG.pack(0xDF, len(mapping)))
        for key, each in mapping.items():
            _add(parts, key)
            _add(parts, each)
    else:
        parts.append(_LONG.pack(0xDD, len(value)))
        for each in value:
            _add(parts, each)
