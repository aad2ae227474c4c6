"""Shape: a result as text or bytes, the same in every sink."""

import json
from typing import Any

from forebay.core.envelope import pack
from forebay.errors import InvalidError
from forebay.streams.ports import Result


def fields_of(result: Result) -> dict[str, Any]:
    """Return what is known of a result beside its value."""
    fields = {name: value for name, value in result._asdict().items() if name != "value"}
    if not fields["facts"]:
        del fields["facts"]
    return fields


def is_pixels(value: object) -> bool:
    """Return whether a value is bytes or an array, which JSON is no form for."""
    return isinstance(value, bytes | bytearray | memoryview) or hasattr(value, "__array_interface__")


def line_of(result: Result, more: dict[str, Any] | None = None) -> str:
    """Return a result as one line of JSON. Raises InvalidError for a value that is not JSON."""
    try:
        return json.dumps(
            {**fields_of(result), **(more or {}), "value": result.value}, allow_nan=False, default=_plain
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidError(f"the value of {result.stream} {result.seq} is not JSON: {error!s:.200}") from None


def envelope_of(result: Result, more: dict[str, Any] | None = None) -> bytes:
    """Return a result whose value is bytes or an array as an envelope."""
    header = {**fields_of(result), **(more or {})}
    value: Any = result.value
    if hasattr(value, "__array_interface__"):
        import numpy

        array: Any = numpy.ascontiguousarray(value)
        header |= {"shape": list(array.shape), "dtype": array.dtype.str}
        value = memoryview(array).cast("B") if array.size else b""
    return pack(header) + bytes(value)


def _plain(value: Any) -> Any:
    """Return a numpy number as a plain one; json calls this for what it does not know."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON")
