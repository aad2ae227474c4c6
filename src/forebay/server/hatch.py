"""Hatch: plain requests are refused, let in and answered here, on their connection, without ASGI.

Under overload most of what a refusal costs is the machinery that asks about it. What is not plain goes the
long way through the door, and both ways ask `WayIn` the same questions and give the same answers.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from forebay.core.basin import Asked
from forebay.core.requests import End, Ended, Request
from forebay.core.task import TaskSpec
from forebay.errors import ForebayError
from forebay.ports.requests import Requests
from forebay.server.access import TENANT_HEADER
from forebay.server.answer import DRAINED_BY_SERVER_B, JSON, NO_STORE, Headers
from forebay.server.asking import Doorman, Heads, accepts_events
from forebay.server.blobs import REFERENCE
from forebay.server.budgets import forget_budget
from forebay.server.caller import LOCAL, Caller, set_caller
from forebay.server.front import Front
from forebay.server.limits import HEADERS_BYTES_MAX
from forebay.server.predict_answers import headers_of, problem_of_end
from forebay.server.problems import InternalError, problem_body, problem_headers
from forebay.server.way_in import WayIn

ADDRESS = b"/v1/predict/"
# Whoever sends one of these wants something that is not plain, or is to be looked at twice.
NOT_PLAIN = frozenset(
    {b"expect", b"transfer-encoding", b"content-encoding", b"origin", b"sec-fetch-site", b"forebay-budget"}
    | {b"prefer"}
)
_JSON_TYPES = frozenset(
    {b"application/json", b"application/json; charset=utf-8", b"application/json;charset=utf-8"}
)
_LENGTH_DIGITS_MAX = 6


class Connection(Protocol):
    """What an exchange needs of its connection."""

    loop: Any
    server_state: Any
    transport: Any
    url: bytes
    headers: list[tuple[bytes, bytes]]

    def on_response_complete(self) -> None:
        """What follows an answer: the next request, or the time that the connection may be idle."""
        ...

    def take_long_way(self, exchange: "Exchange", body: bytes) -> None:
        """Have the application answer a whole request."""
        ...

    def answer_with(self, exchange: "Exchange", app: Any) -> None:
        """Have an ASGI application write the answer: one that does not fit into memory."""
        ...


class Hatch:
    """Takes plain requests of one door."""

    def __init__(
        self, front: Front, doorman: Doorman, way_in: WayIn, answer_ended: Callable[..., Awaitable[None]]
    ) -> None:
        self.front = front
        self.way_in = way_in
        self.answer_ended = answer_ended  # (ended, heads, scope, send): how the door writes an answer
        self._doorman = doorman
        self._specs: Mapping[bytes, TaskSpec] = {
            ADDRESS + name.encode(): spec for name, spec in front.tasks.items()
        }
        self._length_max = min(DRAINED_BY_SERVER_B, front.settings.body_bytes_max)

    def begin(self, connection: Connection) -> "Exchange | None":
        """Return the exchange of the POST whose head has come, answered already when that is a refusal.

        None: it is not plain, and nothing of it was counted.
        """
        spec = self._specs.get(connection.url)
        if spec is None:
            return None
        heads: Heads = dict(connection.headers)
        length = self._length(heads, len(connection.headers))
        if length is None:
            return None
        now = self.front.clock.now()
        try:
            who = self._caller(connection, heads, now)
            asked = self.way_in.asked(spec, heads, who.tenant, length, now=now)
        except ForebayError:  # the long way says it
            return None
        if who.tenant in self.front.watchman.quotas:  # every answer tells what is left of its rates
            return None
        requests = self.front.requests
        if requests is None or not self.way_in.is_open(spec.name, now=now):
            return None
        forget_budget()
        set_caller(who)
        self.way_in.arrived(spec.name, now=now)
        exchange = Exchange(self, connection, requests, asked, heads)
        exchange.who = who
        refused = self.way_in.look(requests, asked)
        if refused is not None:
            exchange.refuse(self.way_in.refusal(refused, asked))
        return exchange

    def _caller(self, connection: Connection, heads: Heads, now: float) -> Caller:
        """Return who asks, as the door would. Raises what it would raise."""
        watchman = self.front.watchman
        if not watchman.watches and TENANT_HEADER not in heads:
            return LOCAL
        asked = {"method": "POST", "path": connection.url.decode("ascii")}
        return watchman.admit(asked, heads, now=now)

    def _length(self, heads: Heads, count: int) -> int | None:
        """Return how long the body is, None where anything about the head is not plain."""
        if len(heads) != count or not NOT_PLAIN.isdisjoint(heads):
            return None
        told = heads.get(b"content-length", b"")
        if heads.get(b"content-type") not in _JSON_TYPES or not told.isdigit():
            return None
        if len(told) > _LENGTH_DIGITS_MAX or int(told) > self._length_max:
            return None
        if not self._doorman.knows(heads.get(b"host")) or accepts_events(heads):
            return None
        if len(b"".join(heads)) + len(b"".join(heads.values())) > HEADERS_BYTES_MAX:
            return None
        return int(told)


class Exchange:
    """One request and its answer. Stands where uvicorn has its cycle, and has what is asked of one."""

    __slots__ = (
        "_connection", "_hatch", "_parts", "_request", "_requests", "asked", "began_at", "disconnected",
        "heads", "keep_alive", "more_body", "response_complete", "response_started", "transport",
        "who",
    )  # fmt: skip

    def __init__(
        self, hatch: Hatch, connection: Connection, requests: Requests, asked: Asked, heads: Heads
    ) -> None:
        self._hatch = hatch
        self._connection = connection
        self._requests = requests
        self._request: Request | None = None
        self._parts: list[bytes] = []
        self.asked = asked
        self.who = LOCAL
        self.heads = heads
        self.began_at: float = connection.loop.time()
        self.transport = connection.transport
        self.keep_alive = True
        self.more_body = True
        self.disconnected = False
        self.response_started = self.response_complete = False

    def take(self, part: bytes) -> None:
        """Take a part of the body; after a refusal it goes nowhere."""
        if not self.response_complete:
            self._parts.append(part)

    def whole(self) -> None:
        """The body has come: let the request in, or refuse it."""
        self.more_body = False
        if self.response_complete:
            return
        hatch, parts = self._hatch, self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._parts = []
        forget_budget()
        set_caller(self.who)
        try:
            if hatch.way_in.references_in(self.asked.task, body):
                self._connection.take_long_way(self, body)
                return
            job = hatch.way_in.job(self.asked, body)
            self._request = hatch.way_in.let_in(self._requests, self.asked, job, self._ended)
        except ForebayError as error:
            self.refuse(error)
        except Exception as error:
            hatch.front.log.exception("request_failed", route="/v1/predict/{}", error=type(error).__name__)
            self.refuse(InternalError())

    def gone(self) -> None:
        """The client has hung up."""
        self.disconnected = True
        request, self._request = self._request, None
        if request is not None:
            self._requests.withdraw(request)

    def refuse(self, error: ForebayError, *, close: bool = False) -> None:
        """Answer with a problem."""
        if self.response_complete or self.disconnected:
            return
        if close:
            self.keep_alive = False
        body = problem_body(error)
        self._finish(error.status, problem_headers(error, body), body)

    def _ended(self, ended: Ended) -> None:
        self._request = None
        if self.disconnected:
            return
        headers = headers_of(ended, now=self._hatch.front.clock.now())
        if ended.end is not End.DONE:
            error, body = problem_of_end(ended)
            self._finish(error.status, problem_headers(error, body) + headers, body)
            return
        output = ended.output or b"null"
        if output.startswith(REFERENCE):
            self._answer_large(ended)
            return
        length = (b"content-length", b"%d" % len(output))
        self._finish(200, [JSON, NO_STORE, *headers, length], output)

    def _answer_large(self, ended: Ended) -> None:
        answer_ended, heads = self._hatch.answer_ended, self.heads

        async def app(scope: Any, _receive: Any, send: Any) -> None:
            await answer_ended(ended, heads, scope, send)

        self._connection.answer_with(self, app)

    def _finish(self, status: int, headers: Headers, body: bytes) -> None:
        """Write the whole answer at once, as uvicorn would write it."""
        connection = self._connection
        if self._hatch.front.lifecycle.draining:
            self.keep_alive = False
        parts = [STATUS_LINE[status]]
        for name, value in (*connection.server_state.default_headers, *headers):
            parts += (name, b": ", value, b"\r\n")
        parts += (b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n", body)
        self.response_started = self.response_complete = True
        self.transport.write(b"".join(parts))
        if not self.keep_alive:
            self.transport.close()
        connection.on_response_complete()
