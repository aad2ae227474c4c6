"""What a dialect is asked and what it says, and how its inputs become payloads."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from forebay.core.task import TaskSpec
from forebay.errors import InvalidError, MalformedError
from forebay.server.answer import Headers
from forebay.server.asking import Heads, unknown_task
from forebay.server.dialects.inner import Inner, Reply
from forebay.server.front import Front


class Asked(NamedTuple):
    """One request: `path` is what follows the name of the dialect."""

    front: Front
    inner: Inner
    method: str
    path: str
    heads: Heads
    query: str
    body: bytes

    def value(self) -> dict[str, Any]:
        """Return the body as an object. Raises MalformedError for no JSON, InvalidError for another kind."""
        try:
            found: object = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise MalformedError("the body is not JSON") from None
        if not isinstance(found, dict):
            raise InvalidError("the body must be an object", errors=(("", "must be an object"),))
        return cast("dict[str, Any]", found)

    def task(self, name: str) -> TaskSpec:
        """Return a served task. Raises UnknownTaskError."""
        spec = self.front.tasks.get(name)
        if spec is None:
            raise unknown_task(name, self.front.tasks)
        return spec


class Said(NamedTuple):
    """One answer: `value` as JSON, or `body` as it is."""

    value: object = None
    status: int = 200
    headers: Headers = []  # noqa: RUF012 - nobody adds to it
    body: bytes | None = None
    kind: bytes | None = None


Handler = Callable[[Asked], Awaitable[Said | Reply]]  # a Reply is a refusal of ours, to be told in its shape


def object_of(value: object) -> dict[str, Any]:
    """Return an object as it is, and an empty one for what is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """Return a list as it is, and an empty one for what is none."""
    found: list[Any] = cast("Any", value) if isinstance(value, list) else []
    return found


def many_of(value: object) -> list[Any]:
    """Return a list as it is, and anything else as the one item of a list."""
    found = list_of(value)
    return found if found or value == [] else [value]


def takes_object(spec: TaskSpec) -> bool:
    """Say whether the payload of a task is an object, or may be anything."""
    return schema_of(spec).get("type") in (None, "object")


def schema_of(spec: TaskSpec) -> Mapping[str, Any]:
    """Return what the payload of a task must be, where the schema only says where that stands."""
    schema = spec.input_schema
    place = str(schema.get("$ref", ""))
    name = place.removeprefix("#/$defs/")
    return schema if name == place else object_of(object_of(schema.get("$defs")).get(name))


def last_text(messages: object) -> str:
    """Return what the last message says, for a task that takes a text. Raises InvalidError."""
    last = (list_of(messages) or [None])[-1]
    content: object = object_of(last).get("content")
    parts = list_of(content)
    if parts:
        content = "".join(str(object_of(part).get("text", "")) for part in parts)
    if not isinstance(content, str):
        raise InvalidError(
            "the last message has no text", errors=(("messages", "the last one must have a text"),)
        )
    return content


def text_of(value: object, name: str) -> str:
    """Return a field that must be a text that is not empty. Raises InvalidError."""
    if not isinstance(value, str) or not value:
        raise InvalidError(f"{name} must be a text", errors=((name, "must be a text"),))
    return value
