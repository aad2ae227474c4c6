"""asked, decoded: the JSON body of a request that is no submission, read into its Struct."""

from typing import TypeVar

import msgspec
from fastapi import Request

from forebay.errors import InvalidError, MalformedError
from forebay.server.answer import Body
from forebay.server.asking import require_json

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
        raise InvalidError(str(error).replace("`", ""), errors=(("body", rule),)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise MalformedError("the body is not JSON") from None
