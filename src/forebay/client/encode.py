"""submission, Raw: a submission as JSON text, refused here when it is not JSON."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from forebay.client.records import BlobRef
from forebay.errors import InvalidError


class Raw(NamedTuple):
    """JSON text that is sent as it is: no number loses a digit on the way."""

    text: bytes


class Options(NamedTuple):
    """What a submission may say beside its task and payload. None is left out."""

    priority: str | int | None = None
    ttl: str | float | None = None
    deadline: str | float | None = None
    run_at: str | None = None
    metadata: Mapping[str, Any] | None = None
    attempts_max: int | None = None
    callback_url: str | None = None
    ordering_key: str | None = None


NO_OPTIONS = Options()


def submission(task: str, payload: object, options: Options = NO_OPTIONS, key: str | None = None) -> bytes:
    """Return the JSON object of one submission, on one line.

    Raises InvalidError when a value has no exact JSON form: NaN, infinity, lone surrogates, a type we
    do not know, nesting that is too deep.
    """
    fields = [b'"task":' + to_json(task, "task"), b'"payload":' + to_json(payload, "payload")]
    for name, value in zip(Options._fields, options, strict=True):
        if value is not None:
            fields.append(f'"{name}":'.encode() + to_json(value, name))
    if key is not None:
        fields.append(b'"idempotency_key":' + to_json(key, "idempotency_key"))
    return b"{" + b",".join(fields) + b"}"


def to_json(value: object, name: str) -> bytes:
    """Return `value` as JSON text. Raises InvalidError that names the field."""
    if isinstance(value, Raw):
        return value.text
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_plain)
        return text.encode()
    except RecursionError:
        raise InvalidError(f"{name}: nested too deeply for JSON") from None
    except UnicodeEncodeError:
        raise InvalidError(f"{name}: a text holds half a character (a lone surrogate)") from None
    except (TypeError, ValueError) as error:
        rule = "NaN and infinity are not JSON" if "Out of range" in str(error) else error
        raise InvalidError(f"{name}: {rule}") from None


def _plain(value: Any) -> object:
    """Return the JSON form of the types tasks are declared with."""
    if isinstance(value, BlobRef):
        return value.reference()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump") and not isinstance(value, type):  # pydantic, which we do not import
        return value.model_dump(mode="json")
    if hasattr(value, "__struct_fields__") and not isinstance(value, type):
        import msgspec

        return msgspec.to_builtins(value)
    raise TypeError(f"a {type(value).__name__} is not JSON")
