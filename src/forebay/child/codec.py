"""Between JSON text and the user's types: msgspec for almost everything, pydantic where it is used."""

# Values of user code have no types here.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import dataclasses
import re
import sys
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from forebay.child.texts import clean
from forebay.declare.blob import Blob
from forebay.errors import ForebayError

DEPTH_MAX = 5  # of annotations searched for pydantic models
LIST_LONG = 32  # from here on collecting the types in C beats looking at each
SHOWN_MAX = 60  # characters of a place inside an output


class NotJsonError(Exception):
    """The output is not JSON; the text says where and why."""


def make_decoder(kind: Any) -> Callable[[bytes], Any]:
    """Return the function from JSON text to a value of this type.

    Raises TypeError when values of the type cannot be read from JSON. The function raises ValueError
    (or RecursionError) for a text that does not fit.
    """
    if kind is Any:
        return msgspec.json.Decoder().decode
    if has_pydantic(kind):
        return typing.cast("Callable[[bytes], Any]", adapter(kind).validate_json)
    return msgspec.json.Decoder(kind, dec_hook=_as_object).decode


def make_fitter(kind: Any) -> Callable[[Any], Any]:
    """Return the function from a value of a frame, with arrays in it, to a value of this type. It raises
    ValueError for one that does not fit."""
    if has_pydantic(kind):
        return typing.cast("Callable[[Any], Any]", adapter(kind).validate_python)
    return lambda value: msgspec.convert(value, kind, dec_hook=_as_array)


def _as_array(kind: type, value: Any) -> Any:
    """The same as for JSON, and arrays where they are annotated."""
    return value if isinstance(value, kind) else _as_object(kind, value)


def make_output_check(kind: Any) -> Callable[[Any, bytes], str] | None:
    """Return what says why an output does not fit its annotation ("" when it does), None when all fit.

    The output is read back from its JSON text, as whoever gets it would: so numpy numbers are numbers and a
    struct with a wrong field inside is found. An output whose very type was annotated and holds nothing
    inside (a text, a number) costs one comparison.
    """
    if kind is Any:
        return None
    if has_pydantic(kind):
        return _pydantic_check(kind)
    try:
        decode = msgspec.json.Decoder(kind, dec_hook=_as_written).decode
    except TypeError:  # it can be written and not be read
        return None
    exact = kind if kind in _CLOSED else None

    def check(value: Any, text: bytes) -> str:
        if type(value) is exact:
            return ""
        try:
            decode(text)
        except Exception as error:
            try:
                decode(whole_numbers(text))
            except Exception:
                return clean(str(error), 300)
        return ""

    return check


def _pydantic_check(kind: Any) -> Callable[[Any, bytes], str]:
    """Models are what they were checked to be when they were made, and may be written in another form."""
    validate = adapter(kind).validate_python

    def check(value: Any, _: bytes) -> str:
        try:
            validate(value)
        except Exception as error:
            return clean(" ".join(str(error).split()), 300)
        return ""

    return check


def whole_numbers(text: bytes) -> bytes:
    """Return the JSON with 1 for 1.0, and of doubled names only the last: a second reading for what did not
    fit at first.

    JSON Schema, and so the door, takes 1.0 for an integer and looks at the last of doubled names only;
    msgspec does neither. Payloads that fit at once, which nearly all do, never come here.
    """
    return msgspec.json.encode(_whole(msgspec.json.decode(text)))


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_object(kind: type, value: Any) -> Any:
    """`object` in an annotation takes what is there, as Any does."""
    if kind is object:
        return value
    if kind is Blob:
        return Blob.from_json(value)
    raise NotImplementedError


_WRITTEN = Blob.of(b"")


def _as_written(kind: type, value: Any) -> Any:
    """The same for an output that is read back: a reference to what was just stored is not followed."""
    return _WRITTEN if kind is Blob else _as_object(kind, value)


def adapter(kind: Any) -> Any:
    """Return what reads and describes a type with pydantic models in it."""
    return sys.modules["pydantic"].TypeAdapter(kind)


def has_pydantic(kind: Any, depth: int = 0) -> bool:
    """Say whether a pydantic model is in the type; msgspec cannot read those."""
    if "pydantic" not in sys.modules or depth > DEPTH_MAX:
        return False
    if isinstance(kind, type) and hasattr(kind, "__pydantic_core_schema__"):
        return True
    parts = list(typing.get_args(kind))
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        parts += typing.get_type_hints(kind).values()
    return any(has_pydantic(part, depth + 1) for part in parts)


def _convert(value: Any) -> Any:
    """Return plain data for what msgspec does not know: pydantic models, numpy scalars and arrays."""
    if isinstance(value, Blob):
        return value.reference()
    if hasattr(value, "__pydantic_serializer__"):
        return value.model_dump(mode="json") if hasattr(value, "model_dump") else dataclasses.asdict(value)
    for plain in (bool, int, float, str):  # subclasses: numpy.float64, str enums of older kinds
        if isinstance(value, plain):
            return plain(value)
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    raise NotJsonError(f"a {type(value).__name__} is not JSON")


_encode = msgspec.json.Encoder(enc_hook=_convert).encode
# What the door takes in a payload: a result may be the next payload, and common readers of JSON end not far
# beyond it.
NESTING_MAX = 100
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*+"')
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_CLOSED = (str, int, bool, float, dict, list)  # as annotations: nothing more is said of what is inside
_SCALARS = frozenset({str, int, bool, float, type(None)})
_ARRAYS = frozenset({list, tuple})
_BINARY = frozenset({bytes, bytearray, memoryview})
_WRONG = (bytes, bytearray, memoryview, set, frozenset)


def encode_output(value: Any) -> bytes:
    """Return the output as JSON text. Blobs in it are stored, and become references.

    Raises NotJsonError naming the place for sets, NaN and infinity, for bytes that are not stored, and for
    whatever has no form in JSON; and the ForebayError of a blob that cannot be stored. Tuples become arrays;
    dates, UUIDs and enums become texts; numbers as keys become texts.
    """
    try:
        plain = is_plain(value)
        text = _encode(value)
        # It writes bytes as base64 and sets as arrays as silently.
        if not plain:
            _refuse_wrong(value, "")
        # msgspec writes NaN and infinity as null, without a word. Only a text with a null needs the search.
        if b"null" in text:
            _refuse_not_finite(value, "")
        if text.count(b"[") + text.count(b"{") > NESTING_MAX and _deeper_than(NESTING_MAX, text):
            raise NotJsonError(f"it is nested deeper than {NESTING_MAX} levels")
        return text
    except (NotJsonError, ForebayError):
        raise
    except RecursionError:
        raise NotJsonError("it is nested too deeply, or contains itself") from None
    except UnicodeEncodeError:
        raise NotJsonError("a text in it is not valid Unicode") from None
    except Exception as error:
        raise NotJsonError(clean(str(error), 300)) from None


def _deeper_than(levels: int, text: bytes) -> bool:
    """Say whether JSON is nested deeper: each round takes the innermost brackets away, all in C."""
    brackets = _TEXTS.sub(b"", text).translate(None, _NO_BRACKETS)
    for _ in range(levels):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if not brackets:
            return False
    return True


def is_plain(value: Any) -> bool:
    """Say whether a value is made of dicts, lists and scalars only."""
    return type(value) in _SCALARS or _is_plain(value)


def _is_plain(value: Any) -> bool:
    """Say whether there are dicts, lists and scalars only. On the path of every output, so it does nothing
    else: no place, no reason."""
    if type(value) is dict:
        inner: Any = value.values()
    elif type(value) in _ARRAYS:
        if len(value) > LIST_LONG and set(map(type, value)) <= _SCALARS:
            return True
        inner = value
    else:
        return False
    for part in inner:  # noqa: SIM110 - a generator expression costs half as much again
        if type(part) not in _SCALARS and not _is_plain(part):
            return False
    return True


def with_blobs(value: Any) -> Any:
    """Return plain data with Blobs in place of bytes; the same object where there are none."""
    if type(value) in _BINARY:
        return Blob.of(value)
    if type(value) is dict:
        kept = {key: with_blobs(inner) for key, inner in value.items()}
        return kept if any(kept[key] is not inner for key, inner in value.items()) else value
    if type(value) in _ARRAYS:
        parts = [with_blobs(inner) for inner in value]
        return parts if any(one is not inner for one, inner in zip(parts, value, strict=True)) else value
    return value


def _refuse_wrong(value: Any, place: str) -> None:
    """Raise for bytes and sets anywhere in plain data, naming the place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_wrong(inner, f"{place}.{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _refuse_wrong(inner, f"{place}[{index}]")
    elif isinstance(value, _WRONG):
        hint = "send text, for example base64" if isinstance(value, _WRONG[:3]) else "send a list"
        raise NotJsonError(f"{_where(place)} is {type(value).__name__}, which is not JSON; {hint}")


def _refuse_not_finite(value: Any, place: str) -> None:
    """Raise for the first NaN or infinity; structures of any kind are searched in their plain form."""
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise NotJsonError(f"{_where(place)} is {value!r}, which is not JSON")
    elif isinstance(value, dict):
        for key, inner in value.items():
            _refuse_not_finite(inner, f"{place}.{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _refuse_not_finite(inner, f"{place}[{index}]")
    elif value is not None and not isinstance(value, str | int):
        plain = _plain(value)
        if plain is not value:
            _refuse_not_finite(plain, place)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if type(value).__module__.partition(".")[0] == "numpy":
        return value.tolist()
    return msgspec.to_builtins(value, enc_hook=_plain_hook)


def _plain_hook(value: Any) -> Any:
    return value.model_dump() if hasattr(value, "model_dump") else _convert(value)


def _where(place: str) -> str:
    return clean(place.lstrip("."), SHOWN_MAX) or "it"
