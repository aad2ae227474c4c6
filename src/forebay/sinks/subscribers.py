"""Subscribers by WebSocket: who is slow loses the oldest, is told how many, and slows nobody."""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from forebay.errors import ConfigError, InvalidError, MethodError, NotFoundError
from forebay.server.hearing import Caller, ended, refuse, stream_of, told
from forebay.server.listener import Listener, check_token, has_websockets
from forebay.server.problems import TooManyReadersError
from forebay.sinks.shape import envelope_of, is_pixels, line_of
from forebay.sources.asked import size_bytes
from forebay.streams.ports import Result

READERS_MAX: Final = 128
CLOSE_WAIT_S: Final = 5.0  # subscribers get this long to take what waits for them
MESSAGE_BYTES_MAX: Final = 4_096  # of what a subscriber says
ALL: Final = "*"


class _Message(NamedTuple):
    stream: str
    data: str | bytes

    @property
    def size(self) -> int:
        return len(self.data)


class _Reader:
    """One subscriber: what waits for it, bounded in results and bytes, and what it missed."""

    def __init__(self, stream: str, items_max: int, bytes_max: int) -> None:
        self.stream = stream
        self.bell = asyncio.Event()
        self._items_max = items_max
        self._bytes_max = bytes_max
        self._waiting: deque[_Message] = deque()
        self._bytes = 0
        self._missed: Counter[str] = Counter()
        self._rung = False

    def put(self, message: _Message) -> tuple[int, bool]:
        """Take one in; return how many were lost for it, and whether to wake. Under the sink's lock."""
        self._waiting.append(message)
        self._bytes += message.size
        lost = 0
        while len(self._waiting) > self._items_max or (self._bytes > self._bytes_max and self._waiting):
            old = self._waiting.popleft()
            self._bytes -= old.size
            self._missed[old.stream] += 1
            lost += 1
        must_ring, self._rung = not self._rung, True
        return lost, must_ring

    def take(self) -> tuple[dict[str, int], _Message | None]:
        """Return what was missed before the next one, and the next one. Under the sink's lock."""
        missed, self._missed = dict(self._missed), Counter()
        if not self._waiting:
            self._rung = False
            self.bell.clear()
            return missed, None
        message = self._waiting.popleft()
        self._bytes -= message.size
        return missed, message


class WebSocket:
    """What `websocket` returns. It listens from the beginning, at `url`."""

    def __init__(
        self, *, host: str, port: int, token: str | None, buffer: int, buffer_bytes: int, readers_max: int
    ) -> None:
        check_token(host, token)
        if not has_websockets():
            raise ConfigError("a WebSocket sink needs the extra `streams`: pip install 'forebay[streams]'")
        self._buffer = (buffer, buffer_bytes)
        self._readers_max = readers_max
        self._readers: set[_Reader] = set()
        self._lock = threading.Lock()
        self._counts = {"written": 0, "sent": 0, "dropped": 0, "readers_met": 0}
        self._ended = False
        self._caller = Caller(host, token)
        self._listener = Listener(self._serve, host=host, port=port, message_bytes_max=MESSAGE_BYTES_MAX)
        self._listener.start()

    @property
    def url(self) -> str:
        """Where it listens; subscribe at `url/v1/streams/NAME`, or `/v1/streams/*` for all."""
        return self._listener.url.replace("http", "ws", 1)

    @property
    def readers(self) -> int:
        """Subscribers now."""
        return len(self._readers)

    def write(self, result: Result) -> None:
        """Hand a result to each subscriber's buffer, without waiting. Raises InvalidError for no JSON."""
        data = envelope_of(result) if is_pixels(result.value) else line_of(result)
        message = _Message(result.stream, data)
        with self._lock:
            self._counts["written"] += 1
            for reader in self._readers:
                if reader.stream in (ALL, result.stream):
                    lost, must_ring = reader.put(message)
                    self._counts["dropped"] += lost
                    if must_ring:
                        self._listener.call(reader.bell.set)

    def counts(self) -> Mapping[str, int]:
        """Return results `written`, messages `sent`, those `dropped` for slow readers, and `readers_met`."""
        with self._lock:
            return dict(self._counts)

    def close(self) -> None:
        """Give subscribers five seconds to take what waits, and end."""
        with self._lock:
            already, self._ended = self._ended, True
            for reader in self._readers:
                self._listener.call(reader.bell.set)
        if not already:
            waited = threading.Event()
            self._listener.call(self._when_empty, waited)
            waited.wait(CLOSE_WAIT_S)
            self._listener.stop()

    def _when_empty(self, waited: threading.Event) -> None:
        if self._readers:
            asyncio.get_running_loop().call_later(0.01, self._when_empty, waited)
        else:
            waited.set()

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            self._caller.check(scope)
            stream = stream_of(scope)
            if stream is None:
                raise NotFoundError("subscribe at /v1/streams/NAME, or /v1/streams/* for all")
            if scope["type"] != "websocket":
                raise MethodError("subscribe with a WebSocket")
            if self._ended:
                raise ended()
            if len(self._readers) >= self._readers_max:
                raise TooManyReadersError(f"{self._readers_max} subscribers at most", limit=self._readers_max)
            await receive()
        except Exception as error:
            await refuse(scope, send, told(error))
            return
        reader = _Reader(stream, *self._buffer)
        with self._lock:
            self._readers.add(reader)
            self._counts["readers_met"] += 1
        listening = asyncio.ensure_future(_until_gone(receive))
        try:
            await send({"type": "websocket.accept"})
            await self._send_all(reader, send, listening)
        except (OSError, RuntimeError):  # the subscriber went while we sent
            pass
        finally:
            listening.cancel()
            with self._lock:
                self._readers.discard(reader)

    async def _send_all(self, reader: _Reader, send: Any, listening: "asyncio.Future[None]") -> None:
        while not listening.done():
            with self._lock:
                missed, message = reader.take()
                is_over = self._ended and message is None
            if missed:
                await send({"type": "websocket.send", "text": line_of_gap(missed)})
            if message is not None:
                kind = "text" if isinstance(message.data, str) else "bytes"
                await send({"type": "websocket.send", kind: message.data})
                with self._lock:
                    self._counts["sent"] += 1
            elif is_over:
                await send({"type": "websocket.close", "code": 1000, "reason": "the stream has ended"})
                return
            else:
                ringing = asyncio.ensure_future(reader.bell.wait())
                waited: set[asyncio.Future[Any]] = {ringing, listening}
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                ringing.cancel()


async def _until_gone(receive: Any) -> None:
    while (await receive())["type"] != "websocket.disconnect":
        pass


def line_of_gap(missed: dict[str, int]) -> str:
    """Return what a subscriber is told of results that it did not get, by stream."""
    import json

    return json.dumps({"gap": missed})


def websocket(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    buffer: int = 64,
    buffer_bytes: str | int = "16MiB",
    readers_max: int = READERS_MAX,
) -> WebSocket:
    """Return a sink that sends results to all who have opened a WebSocket at `/v1/streams/NAME`.

    A result is JSON text; one that is bytes or an array is an envelope. For each subscriber `buffer` results
    of at most `buffer_bytes` wait; what is older is dropped, and before the next message it hears
    `{"gap": {stream: count}}`. `token`: shown as `Authorization: Bearer …`; required where `host` can be
    reached from elsewhere. Raises ConfigError, InvalidError, and UnreachableError where it cannot listen.
    """
    for name, value, most in (("buffer", buffer, 100_000), ("readers_max", readers_max, READERS_MAX)):
        if type(value) is not int or not 1 <= value <= most:
            raise InvalidError(f"{name} must be a whole number from 1 to {most}, not {value!r:.60}")
    return WebSocket(
        host=host,
        port=port,
        token=token,
        buffer=buffer,
        buffer_bytes=size_bytes("buffer_bytes", buffer_bytes),
        readers_max=readers_max,
    )
