"""POST /v1/jobs, one job: read, check, admit, store, answer 202 once it is durable."""

import asyncio
from collections.abc import Sequence
from typing import Any

from forebay.core.admission import Accepted, Rejected
from forebay.core.blobs import BlobInfo
from forebay.core.job import Job, JobRecord, Receipt, Standing, Verdict
from forebay.core.lifecycle import FINAL
from forebay.core.task import TaskSpec
from forebay.errors import (
    DrainingError,
    IdempotencyConflictError,
)
from forebay.server.answer import JSON, NO_STORE, Body, Headers, Receive, Send, answer
from forebay.server.asking import Heads, accepts_events, prefer_wait_s
from forebay.server.deciding import Decider, Early, Refusal, accepted_headers, location
from forebay.server.eta import place
from forebay.server.events import Events
from forebay.server.front import Front
from forebay.server.pressure import Pressure
from forebay.server.references import is_whole
from forebay.server.render import etag, job_json
from forebay.server.repeats import KEY_FIELD, KEY_HEADER, how_known, may_name_a_key, take_key
from forebay.server.storing import count_receipts, record_of, store
from forebay.server.waiters import Waiter, Waiters, hung_up, next_look
from forebay.server.wire import Submission, decode


class Submitter:
    """The way in for single jobs."""

    def __init__(
        self,
        front: Front,
        pressure: Pressure,
        waiters: Waiters,
        decider: Decider,
        events: Events,
    ) -> None:
        self._front = front
        self._pressure = pressure
        self._waiters = waiters
        self._decider = decider
        self._events = events

    async def submit(self, heads: Heads, body: Body, receive: Receive, send: Send) -> None:
        """Answer one submission. Raises a ForebayError for every refusal; nothing is stored then."""
        front = self._front
        now = front.clock.now()
        refused = self._decider.early(now=now)
        if refused is not None and not may_name_a_key(heads, body):
            raise self._decider.refusal(refused, None, now=now)
        text = await body.read(front.settings.body_bytes_max)
        if refused is not None and KEY_HEADER not in heads and KEY_FIELD not in text:
            raise self._decider.refusal(refused, None, now=front.clock.now())
        submission, payload = decode(text)
        take_key(submission, heads)
        await self.take(submission, payload, text, refused, heads, receive, send)

    async def take(
        self,
        submission: Submission,
        payload: Any,
        text: bytes,
        refused: Rejected | DrainingError | None,
        heads: Heads,
        receive: Receive,
        send: Send,
        *,
        spec: TaskSpec | None = None,
    ) -> None:
        """Check a decoded submission that came in `text`, admit it, store it and answer. `spec`: of the task,
        where it differs from what is declared."""
        found = self._decider.references.found(text, payload)
        checked = self._decider.checked(submission, payload, whole=is_whole(found))
        spec = spec or checked
        claimed = await self._decider.references.claim(found, spec) if found else ()
        try:
            await self._take(submission, spec, payload, claimed, refused, heads, receive, send)
        finally:
            self._decider.references.release(claimed)

    async def _take(
        self,
        submission: Submission,
        spec: TaskSpec,
        payload: Any,
        claimed: Sequence[BlobInfo],
        refused: Early | None,
        heads: Heads,
        receive: Receive,
        send: Send,
    ) -> None:
        """Admit, store and answer what was checked."""
        front = self._front
        if not self._pressure.live:
            await self._pressure.refresh((spec.name,), now=front.clock.now())
        # From here to the enqueue nothing waits: ids and times grow in the order the engine gets them.
        job, verdict = self._decider.decide(submission, spec, payload, claimed, refused)
        if not isinstance(verdict, Accepted):
            await self.answer_known(job, verdict, send)
            return
        wait_s = prefer_wait_s(heads)
        if wait_s is not None:
            if accepts_events(heads):
                await self._submit_and_stream(job, receive, send)
            else:
                await self._submit_and_wait(job, wait_s, receive, send)
            return
        (receipt,) = await store(front, (job,), now=job.created_at)
        body = self._decider.accepted(job, receipt)
        if body is not None:
            await answer(send, 202, body, accepted_headers(job))
        else:
            await self.answer_receipt(job, receipt, send)

    async def answer_known(self, job: Job, refused: Refusal, send: Send) -> None:
        """Answer a repeat of what was accepted before. Raises the refusal for anything new."""
        receipt = None
        if job.idempotency_key is not None:
            (receipt,) = await self._front.broker.recall((job,), now=job.created_at)
        if receipt is None:
            raise self._decider.refusal(refused, job.task, now=job.created_at)
        count_receipts(self._front, (job,), (receipt,), now=job.created_at)
        await self._answer_existing(receipt, send)

    async def answer_receipt(self, job: Job, receipt: Receipt, send: Send) -> None:
        """Answer what `accepted` does not."""
        if receipt.verdict is not Verdict.STORED:
            await self._answer_existing(receipt, send)
            return
        front, now = self._front, self._front.clock.now()
        record = JobRecord(job, Standing(receipt.state, ready_at=job.run_at))
        place_now, eta = await place(front, self._pressure, record, now=now)
        body = job_json(record, now=now, position=place_now, eta=eta)
        await answer(send, 202, body, accepted_headers(job))

    async def _answer_existing(
        self,
        receipt: Receipt,
        send: Send,
        extra: Headers | None = None,
        *,
        until: float | None = None,
        receive: Receive | None = None,
    ) -> None:
        """Answer the job that was there already, once it has ended or at `until`."""
        if receipt.verdict is Verdict.CONFLICT:
            raise IdempotencyConflictError
        front, now = self._front, self._front.clock.now()
        record = await record_of(front, receipt.job_id, now=now)
        if until is not None and receive is not None and record.standing.state not in FINAL:
            async with self._waiters.waiting(receipt.job_id, ends_only=True) as waiter:
                record = await self._ended(receipt.job_id, waiter, until, receive, look_first=True)
            now = front.clock.now()
        position, eta = await place(front, self._pressure, record, now=now)
        headers = [JSON, NO_STORE, location(receipt.job_id)]
        if receipt.verdict is not Verdict.SPOOLED:
            headers.append((how_known(receipt), b"true"))
        status = 200 if record.standing.state in FINAL else 202
        body = job_json(record, now=now, position=position, eta=eta)
        await answer(send, status, body, headers + (extra or []))

    async def _submit_and_wait(self, job: Job, wait_s: float, receive: Receive, send: Send) -> None:
        """Prefer: wait. 200 with the finished job if it ends in time, else 202 with the same job."""
        front = self._front
        applied = (b"preference-applied", b"wait=%d" % wait_s)
        until = front.clock.now() + wait_s
        async with self._waiters.waiting(job.id, ends_only=True) as waiter:
            (receipt,) = await store(front, (job,), now=job.created_at)
            if receipt.verdict is not Verdict.STORED:
                await self._answer_existing(receipt, send, [applied], until=until, receive=receive)
                return
            record = await self._ended(job.id, waiter, until, receive)
        now = front.clock.now()
        position, eta = await place(front, self._pressure, record, now=now)
        body = job_json(record, now=now, position=position, eta=eta)
        status = 200 if record.standing.state in FINAL else 202
        headers = [JSON, NO_STORE, location(job.id), applied, (b"etag", etag(record))]
        await answer(send, status, body, headers)

    async def _ended(
        self, job_id: str, waiter: Waiter | None, until: float, receive: Receive, *, look_first: bool = False
    ) -> JobRecord:
        """Return the job when it has ended, or as it stands at `until` or when its client has gone.

        Nothing is read where the engine tells how it ended; `look_first` for a job that was there before
        somebody listened.
        """
        gone = None if waiter is None else asyncio.ensure_future(hung_up(receive, waiter))
        try:
            return await self._end_of(job_id, waiter, until, gone, look_first=look_first)
        finally:
            if gone is not None:
                gone.cancel()

    async def _end_of(
        self,
        job_id: str,
        waiter: Waiter | None,
        until: float,
        gone: "asyncio.Future[None] | None",
        *,
        look_first: bool,
    ) -> JobRecord:
        front = self._front
        while True:
            now = front.clock.now()
            over = waiter is None or now >= until or self._waiters.closed
            if look_first:
                look_first = False
            elif waiter is not None and not over:
                await next_look(waiter, until - now)
                if waiter.settled is not None:
                    return waiter.settled.record()
            record = await record_of(front, job_id, now=front.clock.now())
            if over or record.standing.state in FINAL or (gone is not None and gone.done()):
                return record

    async def _submit_and_stream(self, job: Job, receive: Receive, send: Send) -> None:
        """Prefer: wait with Accept: text/event-stream. 200 with the events of the new job, to its end."""
        reader = self._events.open(job.id)
        try:
            (receipt,) = await store(self._front, (job,), now=job.created_at)
            extra: Headers = []
            if receipt.verdict is Verdict.CONFLICT:
                raise IdempotencyConflictError
            if receipt.verdict is Verdict.SPOOLED:
                await self._answer_existing(receipt, send)  # it has no events before the engine has it
                return
            if receipt.verdict is not Verdict.STORED:
                extra.append((how_known(receipt), b"true"))
                unused, reader = reader, self._events.open(receipt.job_id)
                self._events.release(unused)
            await self._events.stream_new(receipt, reader, receive, send, extra)
        finally:
            self._events.release(reader)
