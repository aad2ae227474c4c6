"""GET /v1/jobs/{id} with ?wait and ETag, its /result, and DELETE (cancel)."""

import asyncio

from forebay.core.degraded import level_word
from forebay.core.job import CancelVerdict, JobRecord
from forebay.core.lifecycle import FINAL, WAITING, State
from forebay.errors import NoResultError, NotFinishedError, StateConflictError
from forebay.server.answer import JSON, NO_STORE, Headers, Receive, Send, answer
from forebay.server.asking import Heads, Scope, query_of, wait_s
from forebay.server.blobs import REFERENCE, BlobDesk
from forebay.server.eta import place
from forebay.server.front import Front
from forebay.server.pressure import Pressure
from forebay.server.render import download_of, etag, job_json
from forebay.server.storing import record_of, written
from forebay.server.waiters import Waiters, hung_up, next_look

_WAIT_ONLY = frozenset({"wait"})
_NOTHING: frozenset[str] = frozenset()


class Shower:
    """Reads of one job, and its cancel."""

    def __init__(self, front: Front, pressure: Pressure, waiters: Waiters, blobs: BlobDesk) -> None:
        self._front = front
        self._pressure = pressure
        self._waiters = waiters
        self._blobs = blobs

    async def show(self, job_id: str, scope: Scope, heads: Heads, receive: Receive, send: Send) -> None:
        """Answer the job; with ?wait at the first change since arrival, at the latest after the wait."""
        known = heads.get(b"if-none-match")
        query = query_of(scope, _WAIT_ONLY) if scope["query_string"] else {}
        seconds = wait_s(query["wait"]) if "wait" in query else 0.0
        now = self._front.clock.now()
        record = await record_of(self._front, job_id, now=now)
        if seconds > 0 and record.standing.state not in FINAL and not _differs(known, record):
            record = await self._wait(job_id, seconds, known, receive)
            now = self._front.clock.now()
        tag = etag(record)
        if known is not None and (known == b"*" or tag in (part.strip() for part in known.split(b","))):
            await send({"type": "http.response.start", "status": 304, "headers": [(b"etag", tag), NO_STORE]})
            await send({"type": "http.response.body", "body": b""})
            return
        position, eta = await place(self._front, self._pressure, record, now=now)
        waits_for = None
        if record.job.ordering_key is not None and record.standing.state in WAITING:
            waits_for = await self._front.broker.waits_for(job_id, now=now)
        download = download_of(record, self._front.links, now=now)
        body = job_json(record, now=now, position=position, eta=eta, waits_for=waits_for, download=download)
        await answer(send, 200, body, [JSON, NO_STORE, (b"etag", tag)])

    async def _wait(self, job_id: str, seconds: float, known: bytes | None, receive: Receive) -> JobRecord:
        clock = self._front.clock
        until = clock.now() + seconds
        async with self._waiters.waiting(job_id) as waiter:
            # Read only after subscribing: what changes from here on is heard.
            first = await record_of(self._front, job_id, now=clock.now())
            if waiter is None or first.standing.state in FINAL or _differs(known, first):
                return first
            gone = asyncio.ensure_future(hung_up(receive, waiter))
            try:
                while True:
                    now = clock.now()
                    if now >= until or gone.done():
                        return await record_of(self._front, job_id, now=now)
                    await next_look(waiter, until - now)
                    if waiter.settled is not None:
                        return waiter.settled.record()
                    record = await record_of(self._front, job_id, now=clock.now())
                    if _moved(first, record) or self._waiters.closed:
                        return record
            finally:
                gone.cancel()

    async def result(self, job_id: str, scope: Scope, heads: Heads, send: Send) -> None:
        """Answer the output alone, of one that is in a blob the bytes with their media type.

        409 not_finished, 409 no_result, 410 past retention, 404 unknown.
        """
        query_of(scope, _NOTHING)
        record = await record_of(self._front, job_id, now=self._front.clock.now())
        state = record.standing.state
        if state not in FINAL:
            raise NotFinishedError(f"the job is {state.value}", retry_after_s=1.0)
        if state is not State.SUCCEEDED:
            error = record.standing.error
            why = f": {error.code}" if error is not None else ""
            raise NoResultError(f"the job ended {state.value}{why}")
        output = record.standing.output or b"null"
        level = record.standing.degraded
        levels: Headers = [(b"forebay-level", b"%d" % level)]
        if (word := level_word(level)) is not None:
            levels.append((b"forebay-degraded", word.encode()))
        if output.startswith(REFERENCE) and await self._blobs.send_output(output, heads, send, extra=levels):
            return
        await answer(send, 200, output, [JSON, NO_STORE, (b"etag", etag(record)), *levels])

    async def cancel(self, job_id: str, scope: Scope, send: Send) -> None:
        """Cancel: 200 when it waited or was cancelled before, 202 while it runs, 409 in another end."""
        query_of(scope, _NOTHING)
        front, now = self._front, self._front.clock.now()
        await record_of(front, job_id, now=now)
        (verdict,) = await written(front, front.broker.cancel((job_id,), now=now))
        if verdict is CancelVerdict.UNKNOWN:
            await record_of(front, job_id, now=now)  # raises; it went between the two looks
        record = await record_of(front, job_id, now=front.clock.now())
        if verdict is CancelVerdict.FINAL:
            raise StateConflictError(f"the job ended {record.standing.state.value} and stays so")
        if verdict is CancelVerdict.CANCELLED and record.job.task in front.estimators:
            front.estimators[record.job.task].forget((job_id,))
        front.log.info("job_cancelled", job_id=job_id, task=record.job.task, verdict=verdict.value)
        position, eta = await place(front, self._pressure, record, now=now)
        status = 202 if verdict is CancelVerdict.REQUESTED else 200
        body = job_json(record, now=now, position=position, eta=eta)
        await answer(send, status, body, [JSON, NO_STORE, (b"etag", etag(record))])


def _moved(first: JobRecord, now: JobRecord) -> bool:
    """Say whether the status changed in between; progress alone is no change."""
    old, new = first.standing, now.standing
    return (old.state, old.fence, old.cancel_requested) != (new.state, new.fence, new.cancel_requested)


def _differs(known: bytes | None, record: JobRecord) -> bool:
    """Say whether the caller's last view is older than the record, so that it need not wait."""
    return known is not None and known != b"*" and etag(record) not in known
