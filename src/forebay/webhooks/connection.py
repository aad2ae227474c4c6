"""Connection: one connection to one receiver; a request out, an answer in, little of its body read."""

import asyncio
from typing import Any, cast

import httptools

HEAD_BYTES_MAX = 32 * 1024
BODY_BYTES_MAX = 4 * 1024  # read; a longer body costs the connection, so that none is read to its end


class BrokenAnswerError(Exception):
    """The receiver closed, or what it sent is no HTTP answer. `silent`: nothing of an answer had come."""

    def __init__(self, message: str, *, silent: bool = False) -> None:
        super().__init__(message)
        self.silent = silent


class Answer:
    """What is kept of an answer."""

    __slots__ = ("retry_after", "status")

    def __init__(self) -> None:
        self.status = 0
        self.retry_after: bytes | None = None


class Connection(asyncio.Protocol):
    """Asks one thing at a time. `open` while another may follow."""

    def __init__(self) -> None:
        self.open = True
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._parser: Any = None
        self._answer = Answer()
        self._head_bytes = self._body_bytes = 0
        self._in_body = self._framed = False

    async def ask(self, request: bytes) -> Answer:
        """Send a request and return its answer. Raises BrokenAnswerError."""
        if self._transport is None or not self.open:
            raise BrokenAnswerError("the connection was closed", silent=True)
        self._begin()
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._waiter
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._waiter = None

    def close(self) -> None:
        """Close at once; what is still to be sent is dropped."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._answer = Answer()
        self._head_bytes = self._body_bytes = 0
        self._in_body = self._framed = False

    # asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        """Read a part of the answer."""
        if self._waiter is None or self._waiter.done():
            self.close()  # nobody asked
            return
        if not self._in_body:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"no HTTP answer: {error}")
        except httptools.HttpParserUpgrade:
            self._fail("no HTTP answer: it wants another protocol")
        else:
            if self._head_bytes > HEAD_BYTES_MAX and not self._in_body:
                self._fail(f"no HTTP answer: more than {HEAD_BYTES_MAX} bytes of headers")

    def connection_lost(self, exc: Exception | None) -> None:
        """End what is waited for: by the end of the stream, if that is how the answer says it ends."""
        self.open = False
        if self._in_body and not self._framed and exc is None:
            self._done()
        else:
            self._fail("the connection broke", silent=not self._head_bytes)

    # httptools' calls

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep what matters."""
        name = name.lower()
        if name == b"retry-after":
            self._answer.retry_after = value
        elif name in {b"content-length", b"transfer-encoding"}:
            self._framed = True

    def on_headers_complete(self) -> None:
        """Keep the status."""
        if self._waiter is None or self._waiter.done():
            self.open = False  # a second answer that nobody asked for
            return
        self._answer.status = self._parser.get_status_code()
        self._in_body = True

    def on_body(self, body: bytes) -> None:
        """Count; past the bound the status is all there is to know."""
        self._body_bytes += len(body)
        if self._body_bytes > BODY_BYTES_MAX:
            self._done()
            self.close()

    def on_message_complete(self) -> None:
        """End the answer; one that only says "go on" (1xx) is followed by another."""
        if 100 <= self._answer.status < 200:
            self._answer = Answer()
            self._in_body = self._framed = False
            return
        self.open = self.open and self._parser.should_keep_alive()
        self._done()
        self._answer = Answer()  # what may still come must not change the one that is handed out
        if not self.open:
            self.close()

    def _done(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(self._answer)

    def _fail(self, message: str, *, silent: bool = False) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(BrokenAnswerError(message, silent=silent))
        self.close()
