"""asked, decoded: the JSON body of a request that is no submission, read into its Struct."""

import re
from typing import TypeVar

import msgspec
from fastapi import Request

from forebay.core.tenant import TENANT, TENANT_RULE
from forebay.errors import InvalidError, MalformedError
from forebay.server.answer import Body
from forebay.server.asking import require_json, shown

_PLACE = re.compile(r"\[(\d+)\]")
_FIELD = re.compile(r"(?:unknown|required) field `([^`]*)`")
T = TypeVar("T", bound=msgspec.Struct)


async def asked(request: Request, kind: type[T], *, rule: str, bytes_max: int) -> T:
    """Return what the body asks for.

    Raises MediaTypeError, TooLargeError, MalformedError for what is not JSON, and InvalidError for what is
    no `kind`; `rule` names in one or two words what the body must be.
    """
    heads = dict(request.scope["headers"])
    require_json(heads)
    return decoded(await Body(request.receive, heads).read(bytes_max), kind, rule=rule)


def decoded(text: bytes, kind: type[T], *, rule: str) -> T:
    """Return what a body asks for. Raises MalformedError and InvalidError as `asked` does."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        told, _, at = str(error).partition(" - at `$")
        path = _path(told, at.rstrip("`"))
        problem = (path, _rule(told)) if path else ("body", rule)
        raise InvalidError(str(error).replace("`", ""), errors=(problem,)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise MalformedError("the body is not JSON") from None


def check_tenant(tenant: str | None) -> None:
    """Raise InvalidError for what names no tenant: a variable that was never set must not stand for whoever
    submits without a key, who may be everybody."""
    if tenant is not None and TENANT.fullmatch(tenant) is None:
        rule = f"must be {TENANT_RULE}"
        raise InvalidError(f"tenant {rule}, not {shown(tenant)}", errors=(("tenant", rule),))


def _path(told: str, at: str) -> str:
    """Return which field msgspec speaks of: its parents, and the one that is missing or unknown."""
    parent = _PLACE.sub(r".\1", at).replace("[...]", "").removeprefix(".")
    named = _FIELD.search(told)
    return ".".join(part for part in (parent, named[1] if named else "") if part)


def _rule(told: str) -> str:
    """Return what msgspec wants, as a rule."""
    if "unknown field" in told:
        return "no such field"
    if "required field" in told:
        return "is required"
    return told.replace("`", "")
