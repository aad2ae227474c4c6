"""Inner: a call of our own routes for a caller who speaks another dialect: keys, rates, checks hold."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from forebay.errors import MalformedError, TooLargeError
from forebay.server.answer import Headers, Receive, Send
from forebay.server.asking import Scope

ANSWER_BYTES_MAX: Final = 64 << 20
# What a caller's head says of himself and of how urgent it is; the rest belongs to the other dialect.
_PASSED: Final = frozenset(
    {
        b"host",
        b"authorization",
        b"forebay-tenant",
        b"forebay-priority",
        b"forebay-budget",
        b"x-request-timeout",
        b"idempotency-key",
        b"origin",
        b"sec-fetch-site",
        b"user-agent",
        b"traceparent",
    }
)
# What our answers say of when to come back, and of how an answer came about.
_TOLD: Final = frozenset(
    {
        b"retry-after",
        b"retry-after-ms",
        b"x-should-retry",
        b"ratelimit",
        b"ratelimit-policy",
        b"forebay-level",
        b"forebay-degraded",
        b"forebay-request-id",
        b"server-timing",
        b"idempotency-replayed",
        b"www-authenticate",
        b"connection",
    }
)
App = Callable[[Any, Receive, Send], Awaitable[None]]


class Reply(NamedTuple):
    """One answer of ours."""

    status: int
    headers: Headers
    body: bytes

    @property
    def good(self) -> bool:
        """Whether it is no problem."""
        return self.status < 400

    @property
    def kind(self) -> str:
        """Its media type."""
        return next((value.decode("latin-1") for name, value in self.headers if name == b"content-type"), "")

    def json(self) -> Any:
        """Return what it says. Raises MalformedError when it is no JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise MalformedError("the answer is not JSON") from None

    def told(self) -> Headers:
        """Return the headers that any dialect passes on."""
        return [pair for pair in self.headers if pair[0] in _TOLD]


class Inner:
    """Calls of one caller. The body of his request must be read before the first."""

    def __init__(self, app: App, scope: Scope, receive: Receive) -> None:
        self._app = app
        self._scope = scope
        self._receive = receive

    async def call(
        self,
        method: str,
        path: str,
        value: object = None,
        *,
        query: str = "",
        headers: Sequence[tuple[bytes, bytes]] = (),
        body: bytes | None = None,
        kind: bytes = b"application/json",
    ) -> Reply:
        """Return what our route answers. `value` is sent as JSON, `body` as it is."""
        raw = msgspec.json.encode(value) if body is None and value is not None else body or b""
        head = [pair for pair in self._scope["headers"] if pair[0] in _PASSED]
        head += [*headers, (b"content-length", b"%d" % len(raw))]
        if raw:
            head.append((b"content-type", kind))
        scope = {
            **self._scope,
            "method": method,
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": query.encode(),
            "headers": head,
        }
        answer = _Kept()
        await self._app(scope, _Given(raw, self._receive).receive, answer.send)
        return Reply(answer.status, answer.headers, b"".join(answer.parts))


class _Given:
    """The body of an inner call; after it what the caller himself does, such as to hang up."""

    def __init__(self, body: bytes, then: Receive) -> None:
        self._body: bytes | None = body
        self._then = then

    async def receive(self) -> Any:
        """Return the next message."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        return await self._then()


class _Kept:
    """An answer that is kept whole, up to ANSWER_BYTES_MAX."""

    def __init__(self) -> None:
        self.status = 500
        self.headers: Headers = []
        self.parts: list[bytes] = []
        self._size = 0

    async def send(self, message: Any) -> None:
        """Take in one message."""
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
            return
        part: bytes = message.get("body", b"")
        self._size += len(part)
        if self._size > ANSWER_BYTES_MAX:
            raise TooLargeError("the answer is larger than this dialect can carry", limit=ANSWER_BYTES_MAX)
        self.parts.append(part)
