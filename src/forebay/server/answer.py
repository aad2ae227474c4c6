"""Send an answer, read a body: the two halves of ASGI, each with its bounds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

from forebay.errors import ForebayError, MalformedError, TooLargeError
from forebay.server.asking import Heads, content_length
from forebay.server.limits import BODY_TIMEOUT_S, DISCARD_BYTES_MAX, DISCARD_S
from forebay.server.problems import BodyTimeoutError, ClientGoneError, problem_body, problem_headers
from forebay.server.started import Started
from forebay.server.whole import CLOSE, is_here

Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
NO_STORE = (b"cache-control", b"no-store")
DRAINED_BY_SERVER_B = 64 * 1024  # an unread body up to this size does not cost the connection


class _Alarm:
    """asyncio.timeout at a third of its price: every body that is still on its way sets one, and few ring."""

    __slots__ = ("_handle", "_rang", "_task")

    def __init__(self, after_s: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._rang = False
        self._handle = task.get_loop().call_later(after_s, self._ring)

    def _ring(self) -> None:
        self._rang = True
        self._task.cancel()

    def is_mine(self) -> bool:
        """Say whether the cancellation that just came is this alarm's alone."""
        return self._rang and self._task.uncancel() == 0

    def off(self) -> None:
        self._handle.cancel()


class Body:
    """The body of one request, read at most once."""

    __slots__ = ("_receive", "expects_continue", "length", "read_all", "started")

    def __init__(self, receive: Receive, heads: Heads) -> None:
        self._receive = receive
        self.length = content_length(heads)
        self.expects_continue = b"expect" in heads
        self.started = False
        self.read_all = self.length == 0 or (self.length is None and b"transfer-encoding" not in heads)

    async def read(self, limit: int) -> bytes:
        """Return the whole body.

        Raises TooLargeError as soon as the limit is passed, BodyTimeoutError after BODY_TIMEOUT_S,
        ClientGoneError when the client hung up half way, MalformedError when bytes are missing.
        """
        if self.length is not None and self.length > limit:
            raise too_large(limit)
        self.started = True
        alarm = None if is_here(self._receive) else _Alarm(BODY_TIMEOUT_S)
        try:
            message = await self._receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                body: bytes = message.get("body", b"")
                self.read_all = True
            else:
                body = await self._read_on(message, limit)
        except asyncio.CancelledError:
            if alarm is not None and alarm.is_mine():
                raise BodyTimeoutError(f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s") from None
            raise
        finally:
            if alarm is not None:
                alarm.off()
        if len(body) > limit:
            raise too_large(limit)
        if self.length is not None and len(body) != self.length:
            raise MalformedError("the body is not as long as Content-Length says")
        return body

    async def _read_on(self, message: Any, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            if message["type"] != "http.request":
                raise ClientGoneError
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise too_large(limit)
            parts.append(part)
            if not message.get("more_body"):
                self.read_all = True
                return b"".join(parts)
            message = await self._receive()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes; every piece within BODY_TIMEOUT_S. Errors as in `read`."""
        self.started = True
        while not self.read_all:
            try:
                async with asyncio.timeout(BODY_TIMEOUT_S):
                    message = await self._receive()
            except TimeoutError:
                raise BodyTimeoutError(f"nothing came for {BODY_TIMEOUT_S:.0f} s") from None
            if message["type"] != "http.request":
                raise ClientGoneError
            self.read_all = not message.get("more_body")
            part: bytes = message.get("body", b"")
            if part:
                yield part

    async def discard(self) -> None:
        """Throw away a bounded part of what still comes: a client that is cut off while it sends may
        never see the answer."""
        left = DISCARD_BYTES_MAX
        try:
            async with asyncio.timeout(DISCARD_S):
                while left > 0:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body"):
                        return
        except TimeoutError:
            return

    @property
    def leftover(self) -> bool:
        """Whether so much is unread that the connection must be closed after the answer."""
        if self.read_all:
            return False
        return self.expects_continue or self.length is None or self.length > DRAINED_BY_SERVER_B


def too_large(limit: int) -> TooLargeError:
    """Return the refusal of a body above `limit` bytes."""
    return TooLargeError(
        f"the body is larger than {limit} bytes; PUT what is large to /v1/blobs and name it", limit=limit
    )


def is_gone(send: Send) -> bool:
    """Say whether nobody is there to be sent anything; servers that are not ours never say so."""
    started = getattr(send, "__self__", None)
    return type(started) is Started and started.gone


async def answer(send: Send, status: int, body: bytes, headers: Headers) -> None:
    """Send one whole answer."""
    headers.append((b"content-length", b"%d" % len(body)))
    started = getattr(send, "__self__", None)
    if type(started) is Started and started.answer(status, headers, body):
        return
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def answer_problem(
    send: Send,
    error: ForebayError,
    *,
    body: Body | None = None,
    close: bool = False,
    extra: Headers | None = None,
) -> None:
    """Send an error as problem+json; closes the connection when too much of the body is unread."""
    text = problem_body(error)
    headers = problem_headers(error, text)
    if extra:
        headers += extra
    leftover = body is not None and body.leftover
    if close or leftover:
        headers.append(CLOSE)
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    if body is not None and leftover and not body.expects_continue:
        await send({"type": "http.response.body", "body": text, "more_body": True})
        await body.discard()
        text = b""
    await send({"type": "http.response.body", "body": text})
