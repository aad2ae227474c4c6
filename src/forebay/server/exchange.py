"""Exchange: one plain request and its answer, on its connection and without ASGI."""

from collections.abc import Mapping
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from forebay.errors import ForebayError
from forebay.server.answer import Headers
from forebay.server.asking import Heads
from forebay.server.budgets import forget_budget
from forebay.server.caller import Caller, set_caller
from forebay.server.front import Front
from forebay.server.problems import InternalError, problem_body, problem_headers


class Connection(Protocol):
    """What an exchange needs of its connection."""

    loop: Any
    server_state: Any
    transport: Any
    url: bytes
    headers: list[tuple[bytes, bytes]]
    lain_s: float  # so long the request had been in the socket when it was read; 0 where it may not matter

    def on_response_complete(self) -> None:
        """What follows an answer: the next request, or the time that the connection may be idle."""
        ...

    def take_long_way(self, body: bytes, told: Mapping[str, object]) -> None:
        """Have the application answer a whole request; `told` goes into its scope."""
        ...

    def answer_with(self, exchange: "Exchange", app: Any) -> None:
        """Have an ASGI application write the answer: one that takes more than a moment, or does not fit into
        memory."""
        ...


class Exchange:
    """Stands where uvicorn has its cycle, and has what is asked of one. `route` is its name in the log."""

    __slots__ = (
        "_parts", "began_at", "connection", "disconnected", "front", "heads", "keep_alive", "more_body",
        "response_complete", "response_started", "transport", "who",
    )  # fmt: skip
    route = ""

    def __init__(self, connection: Connection, front: Front, heads: Heads, who: Caller) -> None:
        self.connection = connection
        self.front = front
        self.heads = heads
        self.who = who
        self._parts: list[bytes] = []
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
        """The body has come: do what was asked for, or refuse it."""
        self.more_body = False
        if self.response_complete:
            return
        parts, self._parts = self._parts, []
        forget_budget()
        set_caller(self.who)
        try:
            self.perform(parts[0] if len(parts) == 1 else b"".join(parts))
        except ForebayError as error:
            self.refuse(error)
        except Exception as error:
            self.failed(error)

    def perform(self, body: bytes) -> None:
        """Do what was asked for. Raises a ForebayError for what is refused."""
        raise NotImplementedError

    def gone(self) -> None:
        """The client has hung up."""
        self.disconnected = True

    def refuse(self, error: ForebayError, *, close: bool = False) -> None:
        """Answer with a problem."""
        if self.response_complete or self.disconnected:
            return
        if close:
            self.keep_alive = False
        body = problem_body(error)
        self.finish(error.status, problem_headers(error, body), body)

    def failed(self, error: Exception) -> None:
        """Say that something broke; called where the exception is handled."""
        self.front.log.exception("request_failed", route=self.route, error=type(error).__name__)  # noqa: LOG004 - called by handlers
        self.refuse(InternalError())

    def finish(self, status: int, headers: Headers, body: bytes) -> None:
        """Write the whole answer at once, as uvicorn would write it."""
        connection = self.connection
        if self.front.lifecycle.draining:
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
