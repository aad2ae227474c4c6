"""What "format" means at the door: the very rules by which the child will read the text.

Called for texts that have a format in their task's schema, and never for anything else.
"""

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import msgspec

from forebay.core.task import FORMATS_BY

Formats = dict[str, Callable[[str], bool]]

_SHARED: dict[str, Any] = {"date": date, "duration": timedelta, "uuid": UUID}
_BY_MSGSPEC: dict[str, Any] = {
    **_SHARED,
    "date-time": Annotated[datetime, msgspec.Meta(tz=True)],
    "date-time-local": Annotated[datetime, msgspec.Meta(tz=False)],
    "date-time-any": datetime,
    "time": Annotated[time, msgspec.Meta(tz=True)],
    "time-local": Annotated[time, msgspec.Meta(tz=False)],
    "time-any": time,
    "decimal": Decimal,
    "base64": bytes,
}
_BY_PYDANTIC: dict[str, Any] = {**_SHARED, "date-time": datetime, "time": time}
# Formats that a user wrote into a schema describe, as JSON Schema has it, and refuse nothing.
_DESCRIBING = (
    "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri", "uri-reference", "iri",
    "iri-reference", "uri-template", "json-pointer", "relative-json-pointer", "regex",
)  # fmt: skip


def formats_of(schema: dict[str, object]) -> Formats:
    """Return the checks of a task's schema by name; empty when its formats only describe."""
    by = schema.get(FORMATS_BY)
    found: Formats = {}
    if by == "msgspec":
        found = {name: _by_msgspec(kind) for name, kind in _BY_MSGSPEC.items()}
    elif by == "pydantic":
        found = {name: _by_pydantic(kind) for name, kind in _BY_PYDANTIC.items()}
    if found:
        for name in _DESCRIBING:
            found[name] = _anything
    return found


def _anything(_: str) -> bool:
    return True


def _by_msgspec(kind: Any) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            msgspec.convert(text, kind)
        except (msgspec.ValidationError, ValueError):
            return False
        return True

    return check


def _by_pydantic(kind: Any) -> Callable[[str], bool]:
    from pydantic import TypeAdapter, ValidationError  # the HTTP framework brings it

    adapter = TypeAdapter[Any](kind)

    def check(text: str) -> bool:
        try:
            adapter.validate_python(text)
        except ValidationError:
            return False
        return True

    return check
