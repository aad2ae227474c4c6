"""GET /v1/jobs/{id}/events: the life of one job as Server-Sent Events, resumable and bounded."""

import asyncio
from typing import Final

import msgspec

from forebay.core.job import JobRecord, Receipt
from forebay.core.lifecycle import FINAL
from forebay.core.token_bucket import TokenBucket
from forebay.errors import RateLimitedError
from forebay.server.answer import NO_STORE, Headers, Receive, Send
from forebay.server.asking import Heads, Scope, query_of
from forebay.server.channel import Reader, ToldEta, event_text
from forebay.server.eta import place
from forebay.server.front import Front
from forebay.server.limits import ANSWER_TIMEOUT_S
from forebay.server.live import DONE, READERS_MAX, Hub
from forebay.server.pressure import Pressure
from forebay.server.problems import ClientGoneError, TooManyReadersError
from forebay.server.render import job_json
from forebay.server.storing import record_of
from forebay.server.watching import HEARTBEAT_S, Watch, eta_json, status_json

OPENS_PER_S: Final = 1_000  # event streams begun, as a rate
OPENS_BURST: Final = 4_000  # and at once
RETRY_MS: Final = 2_000  # what browsers wait before they connect again
CLOSING_RETRY_S: Final = 5.0  # and when the server goes
BUSY_RETRY_S: Final = 5.0

_KIND = (b"content-type", b"text/event-stream; charset=utf-8")
_NO_BUFFER = (b"x-accel-buffering", b"no")  # nginx would hold events back to fill a page
_NOTHING: frozenset[str] = frozenset()
_HEARTBEAT = b": still here\n\n"
_encode = msgspec.json.encode


class Events:
    """Event streams of single jobs."""

    def __init__(self, front: Front, pressure: Pressure, hub: Hub) -> None:
        self._front = front
        self._pressure = pressure
        self._hub = hub
        self._watch = Watch(front, pressure, hub)
        self._opens = TokenBucket(rate_per_s=OPENS_PER_S, burst=OPENS_BURST)

    def close(self) -> None:
        """End every stream, cleanly and with a hint when to come back."""
        self._hub.end()
        self._watch.close()

    def open(self, job_id: str) -> Reader:
        """Return a reader; `release` it. Raises TooManyReadersError (503) and RateLimitedError (429)."""
        if self._hub.readers >= READERS_MAX or self._hub.closed:
            self._front.meters.bound_reached("event_readers")
            raise TooManyReadersError(retry_after_s=BUSY_RETRY_S, limit=READERS_MAX)
        wait_s = self._opens.take(1, now=self._front.clock.now())
        if wait_s > 0:
            self._front.meters.bound_reached("event_opens")
            raise RateLimitedError("event streams are opened too fast", retry_after_s=wait_s)
        reader = self._hub.open(job_id)
        self._watch.begin()
        return reader

    def release(self, reader: Reader) -> None:
        """Let a reader go."""
        self._hub.close(reader)
        self._watch.rest()

    async def stream(self, job_id: str, scope: Scope, heads: Heads, receive: Receive, send: Send) -> None:
        """Answer the events of a job: first how it stands now, then what is behind Last-Event-ID, then what
        comes; the finished job is the last one. 404 unknown, 410 past retention, 204 when the end was seen.
        """
        query_of(scope, _NOTHING)
        await record_of(self._front, job_id, now=self._front.clock.now())  # an unknown id opens nothing
        last_id = heads.get(b"last-event-id", b"").decode("latin-1")
        reader = self.open(job_id)
        try:
            # Read again after opening: what changes from here on is heard.
            record = await record_of(self._front, job_id, now=self._front.clock.now())
            if last_id == DONE and record.standing.state in FINAL:
                await send({"type": "http.response.start", "status": 204, "headers": [NO_STORE]})
                await send({"type": "http.response.body", "body": b""})
                return
            await _start(send, [])
            if scope["method"] != "HEAD":
                await self._send(reader, send, await self._greeting(reader, record, last_id))
                await self._follow(reader, receive, send)
            else:
                await send({"type": "http.response.body", "body": b""})
        finally:
            self.release(reader)

    async def stream_new(
        self, receipt: Receipt, reader: Reader, receive: Receive, send: Send, extra: Headers
    ) -> None:
        """Answer a submission with the events of its job: `accepted` with the job, then as in `stream`.
        The job goes on when the client goes away."""
        record = await record_of(self._front, receipt.job_id, now=self._front.clock.now())
        now = self._front.clock.now()
        position, eta = await place(self._front, self._pressure, record, now=now)
        view = job_json(record, now=now, position=position, eta=eta)
        await _start(send, [(b"location", b"/v1/jobs/" + receipt.job_id.encode()), *extra])
        text = event_text("accepted", view) + await self._greeting(reader, record, "")
        await self._send(reader, send, text)
        await self._follow(reader, receive, send)

    async def _greeting(self, reader: Reader, record: JobRecord, last_id: str) -> bytes:
        """Return what every stream begins with, and put the reader in its place."""
        now, channel = self._front.clock.now(), reader.channel
        text = b"retry: %d\n\n" % RETRY_MS + event_text("status", status_json(record, now))
        self._watch.tell(channel, record)
        if last_id and last_id != DONE:
            missed = reader.resume(last_id)
            if missed is None:
                self._hub.gaps += 1
                text += event_text("gap", _encode({"missed": None, "reason": "unknown_id"}))
            return text
        position, eta = await place(self._front, self._pressure, record, now=now)
        if position is not None or eta is not None:
            text += event_text("eta", eta_json(position, eta, now))
            if channel.eta is None:
                channel.eta = ToldEta(position, eta, now)
        if record.standing.progress is not None and not channel.ring:
            text += event_text("progress", record.standing.progress)
        return text

    async def _follow(self, reader: Reader, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_hung_up(receive, reader))
        channel = reader.channel
        try:
            while not gone.done():
                if not self._front.watchman.stands(reader.who, now=self._front.clock.now()):
                    closing = _encode({"reason": "unauthorized", "retry_after_s": None})
                    await self._send(reader, send, event_text("closing", closing), more=False)
                    return
                text = self._missed(reader) + reader.take()
                if text:
                    await self._send(reader, send, text)
                elif channel.ended or channel.gone:
                    await self._finish(reader, send)
                    return
                elif self._hub.closed:
                    closing = _encode({"reason": "draining", "retry_after_s": CLOSING_RETRY_S})
                    text = b"retry: %d\n" % (CLOSING_RETRY_S * 1000) + event_text("closing", closing)
                    await self._send(reader, send, text, more=False)
                    return
                else:
                    await reader.rung()
                    if reader.place == channel.last and self._silent(reader):
                        await self._send(reader, send, _HEARTBEAT)
        finally:
            gone.cancel()

    def _silent(self, reader: Reader) -> bool:
        channel = reader.channel
        if channel.ended or channel.gone or self._hub.closed:
            return False
        return self._front.clock.now() - reader.wrote_at >= HEARTBEAT_S

    def _missed(self, reader: Reader) -> bytes:
        missed = reader.missed()
        if not missed:
            return b""
        self._hub.gaps += 1
        channel = reader.channel
        gap = _encode({"missed": missed, "reason": "behind"})
        # How the job stands is told again: what was missed may have said it.
        return event_text("gap", gap, f"{channel.token}-{reader.place}") + channel.status

    async def _finish(self, reader: Reader, send: Send) -> None:
        channel = reader.channel
        text = channel.final
        if text is None and not channel.gone:
            now = self._front.clock.now()
            record = await record_of(self._front, channel.job_id, now=now)
            text = event_text("done", job_json(record, now=now), DONE)
        if text is None:
            text = event_text("closing", _encode({"reason": "gone", "retry_after_s": None}))
        await self._send(reader, send, text, more=False)

    async def _send(self, reader: Reader, send: Send, text: bytes, *, more: bool = True) -> None:
        """Send, and wait for a slow reader for ANSWER_TIMEOUT_S at most. Raises ClientGoneError then."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await send({"type": "http.response.body", "body": text, "more_body": more})
        except TimeoutError:
            self._front.meters.bound_reached("event_reader_stuck")
            raise ClientGoneError from None
        reader.wrote_at = self._front.clock.now()
        self._hub.sent += 1


async def _start(send: Send, extra: Headers) -> None:
    headers = [_KIND, NO_STORE, _NO_BUFFER, *extra]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _hung_up(receive: Receive, reader: Reader) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reader.ring()
