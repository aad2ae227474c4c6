"""Hearing: what a small listener asks of every caller, how it reads a body, and how it answers."""

import asyncio
import hmac
from typing import Any

import msgspec

from forebay.errors import ForebayError, StreamEndedError, TooLargeError, UnauthorizedError
from forebay.server.asking import LOOPBACK_NAMES, Doorman, Heads, content_length, media_type
from forebay.server.limits import BODY_TIMEOUT_S
from forebay.server.listener import is_loopback
from forebay.server.problems import (
    BodyTimeoutError,
    ClientGoneError,
    InternalError,
    problem_body,
    problem_headers,
)


class Caller:
    """Checks who calls: the host and origin that are named, and the token where there is one."""

    def __init__(self, host: str, token: str | None) -> None:
        is_open = token is not None and not is_loopback(host)
        self._doorman = Doorman(frozenset({"*"}) if is_open else LOOPBACK_NAMES)
        self._token = None if token is None else token.encode()

    def check(self, scope: Any) -> Heads:
        """Return the headers by name. Raises a ForebayError for who may not come in."""
        # A page of another origin may not read either: a WebSocket asks no leave of the browser.
        heads = self._doorman.check({**scope, "method": "POST"})
        if self._token is not None:
            scheme, _, shown = heads.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(shown.strip(), self._token):
                raise UnauthorizedError("show the token: Authorization: Bearer …")
        return heads


async def read_body(receive: Any, heads: Heads, bytes_max: int) -> bytearray:
    """Return a body. Raises TooLargeError, BodyTimeoutError, MediaTypeError, and ClientGoneError."""
    media_type(heads)
    announced = content_length(heads) or 0
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while announced <= bytes_max and len(body) <= bytes_max:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                body += message.get("body", b"")
                if not message.get("more_body", False) and len(body) <= bytes_max:
                    return body
    except TimeoutError:
        raise BodyTimeoutError(f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s") from None
    raise TooLargeError(f"a frame may have {bytes_max} bytes here", limit=bytes_max)


async def answer(send: Any, status: int, fields: object, headers: list[tuple[bytes, bytes]]) -> None:
    """Send JSON."""
    body = msgspec.json.encode(fields)
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def refuse(scope: Any, send: Any, error: ForebayError) -> None:
    """Send a problem, to a WebSocket that was not accepted too."""
    body = problem_body(error)
    kind = "http.response"
    if scope["type"] == "websocket":
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008, "reason": error.title})
            return
        kind = "websocket.http.response"
    await send({"type": f"{kind}.start", "status": error.status, "headers": problem_headers(error, body)})
    await send({"type": f"{kind}.body", "body": body})


def stream_of(scope: Any) -> str | None:
    """Return the name at the end of `/v1/streams/NAME`, None for another address."""
    name = str(scope["path"]).removeprefix("/v1/streams/")
    return name if name and name != scope["path"] and "/" not in name else None


def told(error: BaseException) -> ForebayError:
    """Return what is said of an error: what we did not expect shows nothing of itself."""
    return error if isinstance(error, ForebayError) else InternalError()


def ended() -> StreamEndedError:
    """Return the error of a stream that is over."""
    return StreamEndedError("the stream has ended: nothing more is taken in")
