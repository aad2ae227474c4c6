"""POST /v1/jobs, one job: read, check, admit, store, answer 202 once it is durable."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from forebay.core.admission import Accepted, Rejected
from forebay.core.blobs import BlobInfo
from forebay.core.job import Job, JobRecord, Receipt, Standing, Verdict
from forebay.core.lifecycle import FINAL, State
from forebay.core.task import TaskSpec
from forebay.errors import (
    DrainingError,
    ForebayError,
    IdempotencyConflictError,
    QuarantinedError,
)
from forebay.server.answer import JSON, NO_STORE, Body, Headers, Receive, Send, answer
from forebay.server.asking import Heads, accepts_events, prefer_wait_s, unknown_task
from forebay.server.caller import caller
from forebay.server.eta import place
from forebay.server.events import Events
from forebay.server.front import Front
from forebay.server.pressure import DRAINING_RETRY_S, Pressure
from forebay.server.quarantine import barred
from forebay.server.references import References, digests, is_whole
from forebay.server.render import accepted_json, etag, job_json
from forebay.server.repeats import KEY_FIELD, KEY_HEADER, how_known, may_name_a_key, take_key
from forebay.server.schema import Check, refusal
from forebay.server.storing import count_receipts, record_of, store
from forebay.server.timely import told
from forebay.server.waiters import Waiter, Waiters, hung_up, next_look
from forebay.server.wire import Submission, body_hash, decode, job_from, with_fingerprint

Early = Rejected | DrainingError
Refusal = Early | QuarantinedError


class Submitter:
    """The way in for single jobs."""

    def __init__(
        self,
        front: Front,
        pressure: Pressure,
        waiters: Waiters,
        checks: dict[str, Check | None],
        events: Events,
    ) -> None:
        self._front = front
        self._pressure = pressure
        self._waiters = waiters
        self._checks = checks
        self._events = events
        self.references = References(front)
        self._only_task = next(iter(front.tasks)) if len(front.tasks) == 1 else None

    def early(self, *, now: float) -> Early | None:
        """Return what can be said before the body is read: draining, or the only queue is full."""
        if self._front.lifecycle.draining:
            return DrainingError(retry_after_s=DRAINING_RETRY_S)
        only = self._only_task
        if only is not None and self._pressure.full(only, now=now):
            verdict = self._pressure.admit(only, jobs=1, size_b=0, now=now)
            if isinstance(verdict, Rejected):
                return verdict
        return None

    def refusal(self, refused: Refusal, task: str | None, *, now: float) -> ForebayError:
        """Return the error for a refusal, and count it. `task` None: what was said early."""
        if isinstance(refused, DrainingError):
            return refused
        task = task or self._only_task
        assert task is not None
        if isinstance(refused, Rejected):
            return self._pressure.refusal(refused, task, now=now)
        meter = self._front.meters.for_task(task)
        meter.arrived(1)
        meter.refused(refused.code, 1)
        return refused

    def checked(self, submission: Submission, payload: object, *, whole: bool = False) -> TaskSpec:
        """Return the task. Of a payload that is in a blob as a `whole` the child checks what is in it.

        Raises UnknownTaskError or InvalidError.
        """
        task = submission.task
        spec = self._front.tasks.get(task)
        if spec is None:
            raise unknown_task(task, self._front.tasks)
        check = self._checks[task]
        if check is not None and not whole and not check.is_valid(payload):
            raise refusal(check, payload)
        return spec

    async def submit(self, heads: Heads, body: Body, receive: Receive, send: Send) -> None:
        """Answer one submission. Raises a ForebayError for every refusal; nothing is stored then."""
        front = self._front
        now = front.clock.now()
        refused = self.early(now=now)
        if refused is not None and not may_name_a_key(heads, body):
            raise self.refusal(refused, None, now=now)
        text = await body.read(front.settings.body_bytes_max)
        if refused is not None and KEY_HEADER not in heads and KEY_FIELD not in text:
            raise self.refusal(refused, None, now=front.clock.now())
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
        found = self.references.found(text, payload)
        checked = self.checked(submission, payload, whole=is_whole(found))
        spec = spec or checked
        claimed = await self.references.claim(found, spec) if found else ()
        try:
            await self._take(submission, spec, payload, claimed, refused, heads, receive, send)
        finally:
            self.references.release(claimed)

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
        hashed = b""
        if submission.idempotency_key is not None:
            hashed = body_hash(submission, payload, digests(claimed))
        if not self._pressure.live:
            await self._pressure.refresh((spec.name,), now=front.clock.now())
        # From here to the enqueue nothing waits: ids and times grow in the order the engine gets them.
        now = front.clock.now()
        job = job_from(
            submission,
            spec,
            job_id=front.broker.new_id(now),
            now=now,
            body_hash=hashed,
            tenant=caller().tenant,
            rules=front.callbacks,
        )
        if spec.coalesce:
            job = with_fingerprint(job, spec)
        verdict = (
            refused
            or barred(front, job, now=now)
            or self._pressure.too_late(job, now=now)
            or self._pressure.admit(spec.name, jobs=1, size_b=job.size, now=now)
        )
        if not isinstance(verdict, Accepted):
            await self._answer_known(job, verdict, send)
            return
        wait_s = prefer_wait_s(heads)
        if wait_s is not None:
            if accepts_events(heads):
                await self._submit_and_stream(job, receive, send)
            else:
                await self._submit_and_wait(job, wait_s, receive, send)
            return
        (receipt,) = await store(front, (job,), now=now)
        if receipt.verdict is Verdict.STORED:
            await self._answer_stored(job, receipt, send)
        else:
            await self._answer_existing(receipt, send)

    async def _answer_known(self, job: Job, refused: Refusal, send: Send) -> None:
        """Answer a repeat of what was accepted before. Raises the refusal for anything new."""
        receipt = None
        if job.idempotency_key is not None:
            (receipt,) = await self._front.broker.recall((job,), now=job.created_at)
        if receipt is None:
            raise self.refusal(refused, job.task, now=job.created_at)
        count_receipts(self._front, (job,), (receipt,), now=job.created_at)
        await self._answer_existing(receipt, send)

    async def _answer_stored(self, job: Job, receipt: Receipt, send: Send) -> None:
        front, now = self._front, self._front.clock.now()
        if receipt.state is State.QUEUED and job.run_at == job.created_at:
            load = self._pressure.load(job.task, now=now)
            position = front.broker.place_now(job, now=now) or max(1, load.queued)
            eta = told(front, load, job, position, now=now)
            body = accepted_json(job, now=now, position=position, eta=eta)
        else:
            record = JobRecord(job, Standing(receipt.state, ready_at=job.run_at))
            place_now, eta = await place(front, self._pressure, record, now=now)
            body = job_json(record, now=now, position=place_now, eta=eta)
        await answer(send, 202, body, [JSON, NO_STORE, _location(job.id)])

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
        headers = [JSON, NO_STORE, _location(receipt.job_id), (how_known(receipt), b"true")]
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
        headers = [JSON, NO_STORE, _location(job.id), applied, (b"etag", etag(record))]
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
            if receipt.verdict is not Verdict.STORED:
                extra.append((how_known(receipt), b"true"))
                unused, reader = reader, self._events.open(receipt.job_id)
                self._events.release(unused)
            await self._events.stream_new(receipt, reader, receive, send, extra)
        finally:
            self._events.release(reader)


def _location(job_id: str) -> tuple[bytes, bytes]:
    return (b"location", b"/v1/jobs/" + job_id.encode())


def verdict_error(line: int, fields: dict[str, object]) -> bytes:
    """Return the NDJSON verdict of a refused line."""
    return msgspec.json.encode({"line": line, **fields}) + b"\n"
