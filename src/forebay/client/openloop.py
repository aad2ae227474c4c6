"""OpenLoop: sends requests when they are due, whatever the server does; connections are kept alive."""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Sequence
from typing import Final, cast
from urllib.parse import urlsplit

import httptools

from forebay.core.loading import CUT, GAVE_UP, UNREACHED, Shot
from forebay.errors import InvalidError

CONNECTIONS_MAX: Final = 4_096
SWEEP_S: Final = 0.05
SPIN_S: Final = 0.0005  # what is due sooner is sent at once


class Target:
    """Where requests go: host, port, and the head that all have in common."""

    def __init__(self, url: str, path: str, headers: Sequence[tuple[str, str]]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InvalidError(f"url: not a URL: {url[:200]!r}")
        self.host = parts.hostname
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.tls = ssl.create_default_context() if parts.scheme == "https" else None
        lines = [f"{{method}} {parts.path.rstrip('/')}{path} HTTP/1.1", f"host: {parts.netloc}"]
        lines += [f"{name}: {value}" for name, value in headers]
        self._head = "\r\n".join(lines)

    def request(self, method: str, body: bytes) -> bytes:
        """Return a whole request."""
        head = self._head.replace("{method}", method, 1)
        return f"{head}\r\ncontent-length: {len(body)}\r\n\r\n".encode("latin-1") + body


class _Connection(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self, owner: "OpenLoop") -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self.number = -1  # of the request on its way
        self.began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by kin

    def send(self, number: int, request: bytes, now: float) -> None:
        """Send one request."""
        assert self._transport is not None
        self.number, self.began = number, now
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def on_message_complete(self) -> None:
        """Called by the parser."""
        number, self.number = self.number, -1
        status = self._parser.get_status_code()
        if number >= 0:
            self._owner.answered(number, status)
        if not self._parser.should_keep_alive():
            self.close()
            return
        self._parser = httptools.HttpResponseParser(self)
        self._owner.idle(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        number, self.number = self.number, -1
        self._owner.lost(self, number)

    @property
    def alive(self) -> bool:
        """Whether it can send."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """Cut it."""
        if self._transport is not None:
            self._transport.abort()


class OpenLoop:
    """Sends `request` at each of `due` (seconds from the start, in order). One that is not answered within
    `give_up_s` is given up and its connection cut, as a client does. Nothing is sent twice. Where all of
    `connections` are busy what is due waits here, and that wait is in its latency."""

    def __init__(self, target: Target, *, connections: int, give_up_s: float) -> None:
        self._target = target
        self._most = connections
        self._give_up_s = give_up_s
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._opening = 0
        self._waiting: deque[int] = deque()
        self._request = b""
        self._due: Sequence[float] = ()
        self._sent: list[float] = []
        self._shots: list[Shot | None] = []
        self._left = 0
        self._began = 0.0
        self._done = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, request: bytes, due: Sequence[float]) -> list[Shot]:
        """Send all, and return what became of each, in order."""
        self._request, self._due, self._left = request, due, len(due)
        self._sent, self._shots = [0.0] * len(due), [None] * len(due)
        self._began = time.monotonic()
        sweeping = asyncio.ensure_future(self._sweep())
        try:
            for number, at in enumerate(due):
                ahead_s = at - self._now()
                if ahead_s > SPIN_S or number % 64 == 63:  # let answers in between, in a burst too
                    await asyncio.sleep(max(0.0, ahead_s))
                self._send(number)
            if self._left:
                await self._done.wait()
        finally:
            sweeping.cancel()
            for one in list(self._open):
                one.close()
            await asyncio.gather(sweeping, *self._tasks, return_exceptions=True)
        return [one for one in self._shots if one is not None]

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _send(self, number: int) -> None:
        while self._idle:
            connection = self._idle.pop()
            if connection.alive:
                self._begin(connection, number)
                return
        self._waiting.append(number)
        if len(self._open) + self._opening < self._most:
            self._opening += 1
            task = asyncio.ensure_future(self._connect())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _begin(self, connection: _Connection, number: int) -> None:
        self._sent[number] = now = self._now()
        connection.send(number, self._request, now)

    async def _connect(self) -> None:
        target, loop = self._target, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._give_up_s):
                _, made = await loop.create_connection(
                    lambda: _Connection(self), target.host, target.port, ssl=target.tls
                )
        except (OSError, TimeoutError):
            if self._waiting:
                self._end(self._waiting.popleft(), UNREACHED)
            return
        finally:
            self._opening -= 1
        self._open.add(made)
        self.idle(made)

    def idle(self, connection: _Connection) -> None:
        """Take a connection that has nothing to do."""
        if self._waiting and connection.alive:
            self._begin(connection, self._waiting.popleft())
        else:
            self._idle.append(connection)

    def answered(self, number: int, status: int) -> None:
        """Take in an answer."""
        self._end(number, status)

    def lost(self, connection: _Connection, number: int) -> None:
        """Take in the end of a connection; `number` was on its way."""
        self._open.discard(connection)
        if number >= 0:
            self._end(number, CUT)
        if self._waiting and len(self._open) + self._opening < self._most:
            self._send(self._waiting.popleft())

    def _end(self, number: int, status: int) -> None:
        if self._shots[number] is not None:
            return
        now = self._now()
        self._shots[number] = Shot(self._due[number], self._sent[number] or now, now, status)
        self._left -= 1
        if not self._left:
            self._done.set()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now = self._now()
            for one in list(self._open):
                if one.number >= 0 and now - self._due[one.number] > self._give_up_s:
                    number, one.number = one.number, -1
                    self._end(number, GAVE_UP)
                    one.close()
            while self._waiting and now - self._due[self._waiting[0]] > self._give_up_s:
                self._end(self._waiting.popleft(), GAVE_UP)
