"""Push: frames that others send, by HTTP or WebSocket, to `/v1/streams/{name}`."""

import threading
from collections.abc import Iterator
from typing import Any, Final

from forebay.core.envelope import header_of, parse, unpack
from forebay.errors import (
    ForebayError,
    InvalidError,
    MethodError,
    NotFoundError,
    QueueFullError,
    QuotaExceededError,
)
from forebay.server.hearing import Caller, answer, ended, read_body, refuse, stream_of, told
from forebay.server.listener import Listener, check_token
from forebay.server.problems import ClientGoneError
from forebay.sources.asked import size_bytes, stream_name
from forebay.sources.feed import STREAMS_MAX, Feed
from forebay.sources.newest import Newest
from forebay.sources.topics import pixels_of
from forebay.streams.ports import Captured

STREAMS_DEFAULT: Final = 64
HEADER_ROOM_BYTES: Final = 16_384
Verdict = dict[str, Any]


_within: list["Push"] = []  # those that a server listens for
_served = threading.Event()


def served() -> None:
    """A server runs this process, and hands on what is sent to it."""
    _served.set()


def within() -> "tuple[Push, ...]":
    """Return the sources that a server listens for."""
    return tuple(_within)


class Push(Feed):
    """What `push` returns. It listens from the beginning, at `url`; a frame that a newer one of its stream
    replaced before anybody asked is counted as `skipped`."""

    live = True

    def __init__(
        self,
        *,
        host: str,
        port: int | None,
        token: str | None,
        streams: tuple[str, ...] | None,
        streams_max: int,
        item_bytes_max: int,
    ) -> None:
        super().__init__("skipped", "decimated", "held_off", "invalid", "refused")
        check_token(host, token)
        self.item_bytes_max = self._bytes_max = item_bytes_max
        self._names = None if streams is None else frozenset(stream_name(name) for name in streams)
        self._streams_max = streams_max
        self._met: dict[str, int] = {}  # frames met, by stream
        self._newest = Newest()
        self._caller = Caller(host, token)
        self._listener: Listener | None = None
        if port is None:
            _within.append(self)
            return
        self._listener = Listener(
            self._serve, host=host, port=port, message_bytes_max=item_bytes_max + HEADER_ROOM_BYTES
        )
        self._listener.start()

    @property
    def names(self) -> frozenset[str] | None:
        """The streams that it takes, None for any."""
        return self._names

    @property
    def url(self) -> str:
        """Where it listens; a stream is at `url/v1/streams/NAME`. Empty where a server listens for it."""
        return "" if self._listener is None else self._listener.url

    def __iter__(self) -> Iterator[Captured]:
        """Return the newest frame of each stream as they come."""
        try:
            yield from self._newest
        finally:
            self.close()

    def close(self) -> None:
        """End: those who send hear 410, and the listener stops."""
        if not self.closed.is_set():
            super().close()
            self._newest.end()
            if self._listener is not None:
                self._listener.stop()

    def take(self, stream: str, found: dict[str, Any], pixels: Any, kind: str | None = None) -> Verdict:
        """Take in one frame and return what its sender is told. Raises a ForebayError for what is refused."""
        if self.closed.is_set():
            raise ended()
        seq = self._meet(stream)
        header = header_of(found, len(pixels))
        unwanted = self.unwanted(stream)
        if unwanted is None:
            facts = {**({} if kind is None else {"content_type": kind}), **(header.facts or {})}
            now = self.clock.now()
            captured_at = now if header.captured_at is None else min(header.captured_at, now)
            self.count("frames")
            self.count(
                "skipped",
                self._newest.put(
                    Captured(
                        pixels_of(header, bytes(pixels)), stream, captured_at, header.deadline, facts or None
                    )
                ),
            )
        else:
            self.count(unwanted)
        asked = self.pressed(stream)
        return {
            "stream": stream,
            "seq": seq if header.seq is None else header.seq,
            "taken": unwanted is None,
            "reason": unwanted,
            "credits": None if asked is None else asked.credits,
            "every": 1 if asked is None else asked.every,
            "retry_after_s": None if asked is None else asked.retry_after_s,
        }

    def _meet(self, stream: str) -> int:
        """Return the number of this frame in its stream. Raises NotFoundError and QuotaExceededError."""
        if self._names is not None and stream not in self._names:
            raise NotFoundError("no such stream is taken in here")
        if stream not in self._met:
            stream_name(stream)
            if len(self._met) >= self._streams_max:
                raise QuotaExceededError(
                    f"{self._streams_max} streams are taken in here",
                    limit=self._streams_max,
                    retry_after_s=60,
                )
            self._met[stream] = 0
        self._met[stream] += 1
        return self._met[stream] - 1

    # ---- the door ---------------------------------------------------------------------------------------

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            heads = self._caller.check(scope)
            stream = stream_of(scope)
            if stream is None:
                raise NotFoundError("frames go to /v1/streams/NAME")
            if self.closed.is_set():
                raise ended()
            if scope["type"] == "websocket":
                await self._converse(stream, receive, send)
                return
            if scope["method"] not in {"PUT", "POST"}:
                raise MethodError("PUT or POST a frame here")
            body = await read_body(receive, heads, self._bytes_max)
            found = parse(heads[b"forebay-frame"]) if b"forebay-frame" in heads else {}
            kind = heads.get(b"content-type")
            verdict = self.take(
                stream, found, bytes(body), None if kind is None else kind.decode("latin-1")[:100]
            )
            await self._tell(send, verdict)
        except ClientGoneError:
            return
        except Exception as error:
            self.count("invalid" if isinstance(error, InvalidError) else "refused")
            await refuse(scope, send, told(error))

    async def _tell(self, send: Any, verdict: Verdict) -> None:
        if verdict["reason"] == "held_off":
            raise QueueFullError(
                f"{verdict['stream']} is to send nothing now", retry_after_s=verdict["retry_after_s"] or 1.0
            )
        headers = [] if verdict["credits"] is None else [(b"forebay-credits", b"%d" % verdict["credits"])]
        await answer(send, 202, verdict, headers)

    async def _converse(self, stream: str, receive: Any, send: Any) -> None:
        await receive()  # websocket.connect
        self._meet_once(stream)
        await send({"type": "websocket.accept"})
        while True:
            message = await receive()
            if message["type"] != "websocket.receive":
                return
            try:
                data = message.get("bytes")
                if data is None:
                    raise InvalidError("a frame is a binary message")
                told_text: Any = self.take(stream, *unpack(data))
            except ForebayError as error:
                self.count("invalid" if isinstance(error, InvalidError) else "refused")
                told_text = {"taken": False, "reason": error.code, "detail": str(error)}
            await send({"type": "websocket.send", "text": _json(told_text)})

    def _meet_once(self, stream: str) -> None:
        self._meet(stream)
        self._met[stream] -= 1


def _json(fields: object) -> str:
    import msgspec

    return msgspec.json.encode(fields).decode()


def push(
    *,
    host: str = "127.0.0.1",
    port: int | None = 0,
    token: str | None = None,
    streams: tuple[str, ...] | list[str] | None = None,
    streams_max: int = STREAMS_DEFAULT,
    item_bytes_max: str | int = "16MiB",
) -> Push:
    """Return a live source of frames that others send to `PUT /v1/streams/NAME`, or by WebSocket to the same
    address. Port 0 takes a free one; `url` says which. Port None, in a pipeline under `forebay serve`: they
    send to `/v1/streams/NAME` of the server, with its keys, by HTTP alone.

    `token`: callers show it as `Authorization: Bearer …`; required where `host` is reached from elsewhere.
    `streams`: the names that may be; without it any, `streams_max` at most. `item_bytes_max`: of one frame.
    Raises ConfigError, InvalidError, and UnreachableError where it cannot listen.
    """
    if type(streams_max) is not int or not 1 <= streams_max <= STREAMS_MAX:
        raise InvalidError(
            f"streams_max must be a whole number from 1 to {STREAMS_MAX}, not {streams_max!r:.60}"
        )
    if port is None and not _served.is_set():
        raise InvalidError("port=None is for a pipeline that `forebay serve` runs; give a port, or 0")
    return Push(
        host=host,
        port=port,
        token=token,
        streams=None if streams is None else tuple(streams),
        streams_max=streams_max,
        item_bytes_max=size_bytes("item_bytes_max", item_bytes_max),
    )
