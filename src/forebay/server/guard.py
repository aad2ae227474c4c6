"""Guard: what uvicorn leaves open on a connection: bounds on headers in size and in time.

uvicorn counts neither bytes nor lines of headers and waits for them, and for a first byte, without end.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from forebay.errors import ForebayError, MalformedError
from forebay.server import limits
from forebay.server.exchange import Exchange
from forebay.server.hatch import Hatch
from forebay.server.heads import last_words, names_its_host, too_large, without_upgrade
from forebay.server.limits import HEADERS_BYTES_MAX, HEADERS_MAX, HEADERS_TIMEOUT_S, PATH_BYTES_MAX
from forebay.server.one_write import Counted, OneWrite
from forebay.server.predict import LAIN_S
from forebay.server.problems import BodyTimeoutError, HeadersTooLargeError, UriTooLongError

_HEAD_BYTES_MAX = HEADERS_BYTES_MAX + PATH_BYTES_MAX
_UNREAD_BODY_S = 10.0  # a client may go on sending this long after its answer
_HALF_CLOSED_S = (
    1.0  # a client that has ended its side is answered, and let go when nothing comes for so long
)


class HeadRefused(Exception):
    """Stops the parser."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection. `head_at` is when the pending head began to be waited for, None inside a request."""

    upgrades = False  # whether a WebSocket may come of it
    head_at: float | None = None
    answered_at: float | None = None
    hatch: Hatch | None = None  # answers plain requests on their connection

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True
        self._barren_b = 0  # came with a body since the last bytes of it: trailers, extensions of chunks
        self._unread_b, self._unread_at = 0, 0.0  # written and not taken by the client, and since when
        self._half_closed = False
        self._refusal: ForebayError | None = None
        self._exchange: Exchange | None = None  # the last one; at most one is open
        self._idle_at: float | None = None  # since when all was answered, None while something is to be
        self._silent = True  # nothing was read yet
        self._requests = 0  # begun
        self.lain_s = 0.0  # so long the last of them had been in the socket when it was read
        if self.hatch is not None:
            self.hatch.knocked(id(self))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock of the first head."""
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", OneWrite(transport, self.loop))
        self.head_at = self.loop.time()

    def data_received(self, data: bytes) -> None:
        """Count what belongs to a head."""
        if self._refusal is not None:
            return
        self._idle_at = None
        self._spoke()
        if self._in_head:
            if self.head_at is None:
                self.head_at = self.loop.time()
            self._head_bytes += len(data)
            if not self.upgrades and (b"pgrade" in data or b"PGRADE" in data):
                data = without_upgrade(data)
        else:
            self._barren_b += len(data)  # until it turns out to be the body
        super().data_received(data)
        beside_b = self._head_bytes if self._in_head else self._barren_b
        if beside_b > _HEAD_BYTES_MAX and self._refusal is None:
            self._refusal = too_large()
            self.send_400_response("")

    def on_headers_complete(self) -> None:
        """The head is in: bound its address and the number of its headers.

        Once a head and not once a header: the bytes of a head are bounded as they come.
        """
        if len(self.url) > PATH_BYTES_MAX:
            self._refusal = UriTooLongError(
                f"more than {PATH_BYTES_MAX} bytes of address", limit=PATH_BYTES_MAX
            )
            raise HeadRefused
        if len(self.headers) > HEADERS_MAX:
            self._refusal = HeadersTooLargeError(f"more than {HEADERS_MAX} headers", limit=HEADERS_MAX)
            raise HeadRefused
        if self.url[:1] != b"/" and not names_its_host(self.url, self.headers):
            self._refusal = MalformedError("the address and the Host header name different hosts")
            raise HeadRefused
        if self.transport.is_closing():  # the last answer was given: what was sent after it is not begun
            raise HeadRefused
        self._in_head = False
        self._head_bytes = 0
        self.head_at = self._idle_at = None
        if self.hatch is not None:
            self.lain_s = self.hatch.lain_s(self, first=not self._requests)
        self._requests += 1
        if not self._begin_exchange():
            if self.lain_s:
                cast("dict[str, Any]", self.scope)[LAIN_S] = self.lain_s
            super().on_headers_complete()

    def _begin_exchange(self) -> bool:
        """Have the hatch take this request, if it is plain and nothing before it waits for its answer."""
        before: Any = self.cycle
        if self.hatch is None or not self.hatch.serves(self.url) or self.flow.write_paused:
            return False
        if before is not None and not before.response_complete:
            return False
        parser: Any = self.parser
        if parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
            return False
        if not parser.should_keep_alive():
            return False
        exchange = self._exchange = self.hatch.begin(self)
        if exchange is None:
            return False
        self.cycle = cast("Any", exchange)
        return True

    def _spoke(self) -> None:
        if self._silent and self.hatch is not None:
            self.hatch.spoke(id(self))
        self._silent = False

    def on_body(self, body: bytes) -> None:
        """A part of the body has come."""
        self._barren_b = 0
        cycle: Any = self.cycle
        if isinstance(cycle, Exchange):
            cycle.take(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """What comes next is another head."""
        self._in_head = True
        self._barren_b = 0
        cycle: Any = self.cycle
        if isinstance(cycle, Exchange):
            cycle.whole()
        else:
            super().on_message_complete()
            if cycle is None:  # a WebSocket begins: no request is to be answered
                return
            cycle.more_body = False  # also of a request that was answered before its body had come
        if cycle is not None and cycle.response_complete:
            self._idle_at = self.loop.time()

    def take_long_way(self, body: bytes, told: Mapping[str, object]) -> None:
        """Have the application answer a whole request that an exchange began."""
        self._exchange = self.cycle = cast("Any", None)
        scope: Any = self.scope
        scope.update(told)
        super().on_headers_complete()
        super().on_body(body)
        super().on_message_complete()

    def answer_with(self, exchange: Exchange, app: Any) -> None:
        """Have an ASGI application write the answer of an exchange."""
        cycle = RequestResponseCycle(
            scope=cast("Any", {"type": "http", "method": "POST"}),
            transport=exchange.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=exchange.keep_alive,
            on_response=self.on_response_complete,
        )
        cycle.more_body = False
        newest: Any = self.cycle
        if newest is exchange:
            self.cycle = cycle
        self._start(cycle, app)

    def _start(self, cycle: RequestResponseCycle, app: Any) -> None:
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone, or was let go."""
        exchange, self._exchange = self._exchange, None
        self._spoke()
        if exchange is not None:
            exchange.gone()
        newest: Any = self.cycle
        if newest is exchange:
            self.cycle = cast("Any", None)
        super().connection_lost(exc)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client has said all it will say: a whole request is answered all the same."""
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete or not self._in_head or self._head_bytes:
            return None
        self._half_closed = True
        counted = Counted(self.transport)
        cycle.transport = counted
        self.loop.call_later(_HALF_CLOSED_S, self._let_go, counted, 0)
        return True

    def _let_go(self, counted: "Counted", seen: int) -> None:
        """Nobody can tell a client that listens from one that is gone, but by writing: it is let go when
        nothing is written to it."""
        if counted.writes > seen and not self.transport.is_closing():
            self.loop.call_later(_HALF_CLOSED_S, self._let_go, counted, counted.writes)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        """After the last answer to a client that has ended its side the connection ends."""
        self.server_state.total_requests += 1
        cycle: Any = self.cycle
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start(*self.pipeline.pop())
        elif self._refusal is not None:
            self.transport.write(last_words(self._refusal))
            self.transport.close()
        else:
            self._idle_at = self.loop.time()
        if self._half_closed and (cycle is None or cycle.response_complete):
            self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """The parser reads nothing more after an upgrade: this request is the last of its connection."""
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_started:
            cycle.keep_alive = False
        else:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer as problem+json and close. What was asked for before is answered first: in its place, or
        within its answer, this would be taken for it."""
        if self.transport.is_closing():
            return
        error = self._refusal or MalformedError("the request is not proper HTTP")
        self._refusal, self.head_at = error, None
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete and (self._in_head or self.pipeline):
            if not self._in_head:
                self.pipeline.popleft()  # the newest, which broke off
            return
        if self._in_head or cycle is None or not cycle.response_started:
            self.transport.write(last_words(error))
        self.transport.close()

    def look(self, now: float) -> str | None:
        """End the connection when it is too slow; return the name of the bound that it has reached."""
        if self._is_stuck(now):
            self.transport.abort()
            return "unread_answer"
        if self.transport.is_closing():
            return None
        self.end_slow_body(now)
        error = self.overdue(now)
        if error is None:
            return None
        bound = "headers_timeout" if self.head_at else "unread_body"
        self.end(error)
        return bound

    def _is_stuck(self, now: float) -> bool:
        """Say whether the client has taken nothing of what waits for it for ANSWER_TIMEOUT_S. One that was
        told to close would wait for it without end."""
        if not (self.flow.write_paused or self.transport.is_closing()):
            return False
        left_b = self.transport.get_write_buffer_size()
        if left_b != self._unread_b:
            self._unread_b, self._unread_at = left_b, now
        return left_b > 0 and now - self._unread_at > limits.ANSWER_TIMEOUT_S

    def overdue(self, now: float) -> ForebayError | None:
        """Return why the connection should end now, None while it is in time."""
        if self._idle_at is not None and now - self._idle_at > self.timeout_keep_alive:
            self.transport.close()
            return None
        if self.head_at is not None:
            if now - self.head_at > HEADERS_TIMEOUT_S:
                return BodyTimeoutError(f"the headers did not arrive within {HEADERS_TIMEOUT_S:.0f} s")
            return None
        cycle: Any = self.cycle
        if cycle is None or not cycle.response_complete or not cycle.more_body:
            self.answered_at = None
        elif self.answered_at is None:
            self.answered_at = now
        elif now - self.answered_at > _UNREAD_BODY_S:
            return BodyTimeoutError("the body went on after the answer")
        return None

    def end_slow_body(self, now: float) -> None:
        """Refuse the exchange whose body did not come within BODY_TIMEOUT_S."""
        exchange = self._exchange
        if exchange is not None and exchange.more_body and now - exchange.began_at > limits.BODY_TIMEOUT_S:
            exchange.refuse(
                BodyTimeoutError(f"the body did not arrive within {limits.BODY_TIMEOUT_S:.0f} s"), close=True
            )

    def end(self, error: ForebayError) -> None:
        """Close the connection, saying why when a request has begun and nothing was answered to it."""
        if self._head_bytes and self.answered_at is None:
            self._refusal = error
            self.send_400_response("")
        else:
            self.transport.close()
