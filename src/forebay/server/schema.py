"""Payloads against the JSON Schema of their task, at the door."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol

import jsonschema_rs

from forebay.core.task import TaskSpec
from forebay.errors import AppError, InvalidError
from forebay.server.asking import shown
from forebay.server.formats import formats_of
from forebay.server.limits import ERRORS_MAX

_MASK = "the value"  # in messages, where a scalar is put in and anything larger is not


class Check(Protocol):
    """A compiled schema."""

    def is_valid(self, instance: Any) -> bool:
        """Say whether the value follows the schema."""
        ...

    def iter_errors(self, instance: Any) -> Any:
        """Return the rules it breaks."""
        ...


def compile_checks(tasks: Mapping[str, TaskSpec]) -> dict[str, Check | None]:
    """Return one check per task, None for a task that takes any JSON. Raises AppError for a bad schema."""
    return {name: _compile(spec) for name, spec in tasks.items()}


def _compile(spec: TaskSpec) -> Check | None:
    if not spec.input_schema:
        return None
    try:
        formats = formats_of(spec.input_schema)
        return jsonschema_rs.validator_for(
            spec.input_schema,
            mask=_MASK,
            retriever=_fetch_nothing,
            formats=formats,
            validate_formats=bool(formats),
        )
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise AppError(f"the input schema of {spec.name} is not usable: {error}") from None


def _fetch_nothing(uri: str) -> NoReturn:
    raise ValueError(f"a schema must stand alone, it points to {uri}")


def refusal(check: Check, payload: Any) -> InvalidError:
    """Return the error naming each field of the payload that breaks a rule, the rule and the value."""
    found: list[tuple[str, str]] = []
    for error in check.iter_errors(payload):
        path = ".".join(("payload", *(str(part) for part in error.instance_path)))
        found.append((path, _rule(str(error.message), payload, error.instance_path)))
        if len(found) >= ERRORS_MAX:
            break
    first = f"{found[0][0]}: {found[0][1]}" if found else "the payload breaks the schema of its task"
    return InvalidError(first, errors=tuple(found))


def _rule(message: str, payload: Any, path: Sequence[str | int]) -> str:
    """Return the sentence with the value in it. It is looked up here: asked for it, the validator copies."""
    value = payload
    try:
        for part in path:
            value = value[part]
    except (KeyError, IndexError, TypeError):
        return message
    if message.startswith(_MASK):
        return shown(value) + message.removeprefix(_MASK)
    return message if isinstance(value, dict | list) else f"{message}, not {shown(value)}"
