"""POST /v1/predict/{task}: a payload in, its output out, within a deadline or refused at once; no disk."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec

from forebay.core.admission import Rejected
from forebay.core.degraded import level_word
from forebay.core.entry import Asked
from forebay.core.job import Job
from forebay.core.requests import End, Ended, Request
from forebay.core.task import TaskSpec
from forebay.core.units import duration_s
from forebay.errors import DrainingError, InvalidError, MediaTypeError, MethodError, NoWorkerError
from forebay.ports.requests import Requests
from forebay.server.answer import JSON, NO_STORE, Body, Headers, Receive, Send, answer, too_large
from forebay.server.asking import (
    Heads,
    Scope,
    accepts_events,
    media_type,
    prefers_async,
    query_of,
    unknown_task,
)
from forebay.server.blobs import REFERENCE, BlobDesk
from forebay.server.budgets import name_budget
from forebay.server.caller import caller
from forebay.server.front import Front
from forebay.server.live import Hub
from forebay.server.predict_answers import answer_end, refusal_of, timing
from forebay.server.predict_stream import open_reader, stream_parts
from forebay.server.pressure import DRAINING_RETRY_S, Pressure
from forebay.server.problems import ClientGoneError
from forebay.server.quarantine import barred
from forebay.server.references import is_whole
from forebay.server.repeats import take_key
from forebay.server.schema import Check, refusal
from forebay.server.submit import Submitter
from forebay.server.wire import Submission, decode_payload, priority_of

TIMEOUT_HEADER = b"x-request-timeout"
PRIORITY_HEADER = b"forebay-priority"
REQUEST_ID = b"forebay-request-id"
LEVEL = b"forebay-level"
DEADLINE_MAX_S = 3600.0
ATTEMPTS_MAX = 2  # of a request: the second one only after its worker died
GONE_LOOK_S = 0.02  # a client is listened to after its request has waited so long
_NOTHING: frozenset[str] = frozenset()


class Predictor:
    """The way in and out of requests."""

    def __init__(
        self,
        front: Front,
        pressure: Pressure,
        submitter: Submitter,
        checks: dict[str, Check | None],
        blobs: BlobDesk,
    ) -> None:
        self._front = front
        self._pressure = pressure
        self._submitter = submitter
        self._checks = checks
        self._blobs = blobs
        self._listening = Listening()

    async def predict(
        self, task: str, scope: Scope, heads: Heads, body: Body, receive: Receive, send: Send
    ) -> None:
        """Answer one request with its output. Raises a ForebayError for every refusal."""
        front = self._front
        spec = self._asked_for(task, scope, heads)
        name_budget(front, heads)
        now = front.clock.now()
        if prefers_async(heads):
            await self._as_job(spec, heads, body, receive, send)
            return
        length = body.length or 0
        if length > front.settings.body_bytes_max:
            raise too_large(front.settings.body_bytes_max)
        asked = self._asked(spec, heads, length, now)
        self._pressure.arrived(task, 1, now=now)
        requests = self._basin(asked)
        refused = self._pressure.tenant_refusal(task, size_b=length, now=now) or requests.look(asked)
        if refused is not None:
            raise self._refusal(refused, asked)
        text = await body.read(front.settings.body_bytes_max)
        payload = decode_payload(text)
        found = self._submitter.references.found(text, payload)
        check = self._checks[task]
        if check is not None and not is_whole(found) and not check.is_valid(payload):
            raise refusal(check, payload)
        claimed = await self._submitter.references.claim(found, spec) if found else ()
        try:
            job = self._job(asked, text)
            if accepts_events(heads):
                await self._stream(requests, asked, job, receive, send)
            else:
                await self._answer(await self._run(requests, asked, job, receive), heads, send)
        finally:
            self._submitter.references.release(claimed)

    def _asked_for(self, task: str, scope: Scope, heads: Heads) -> TaskSpec:
        if scope["method"] != "POST":
            raise MethodError("allowed: POST")
        if scope["query_string"]:
            query_of(scope, _NOTHING)
        spec = self._front.tasks.get(task)
        if spec is None:
            raise unknown_task(task, self._front.tasks)
        if media_type(heads) != "application/json":
            raise MediaTypeError("Content-Type must be application/json: the body is the payload")
        return spec

    def _asked(self, spec: TaskSpec, heads: Heads, size_b: int, now: float) -> Asked:
        told = heads.get(TIMEOUT_HEADER)
        if told is None:
            deadline_s = spec.deadline_s or self._front.settings.request_deadline
        else:
            deadline_s = _timeout_s(told)
        urgency = heads.get(PRIORITY_HEADER)
        priority = spec.priority if urgency is None else _priority(urgency)
        return Asked(spec.name, caller().tenant, priority, size_b, now, now + deadline_s)

    def _basin(self, asked: Asked) -> Requests:
        """Return where requests go. Raises DrainingError or NoWorkerError where they go nowhere."""
        front = self._front
        if front.lifecycle.draining:
            raise DrainingError(retry_after_s=DRAINING_RETRY_S)
        if front.requests is None:
            raise NoWorkerError(
                "no worker runs in this process; submit a job", retry_after_s=DRAINING_RETRY_S
            )
        load = self._pressure.load(asked.task, now=asked.created_at)
        if load.paused or load.draining:
            front.meters.for_task(asked.task).refused("draining", 1)
            how = "paused" if load.paused else "draining"
            raise DrainingError(
                f"the queue of {asked.task} is {how}; nothing of it runs until it is resumed",
                retry_after_s=DRAINING_RETRY_S,
            )
        return front.requests

    def _refusal(self, refused: Rejected, asked: Asked) -> Exception:
        self._front.meters.for_task(asked.task).refused(refused.reason.value, 1)
        return refusal_of(refused, asked)

    def _job(self, asked: Asked, text: bytes) -> Job:
        front = self._front
        return Job(
            front.broker.new_id(front.clock.now()),
            asked.task,
            text,
            asked.created_at,
            asked.created_at,
            asked.priority,
            ATTEMPTS_MAX,
            None,
            asked.deadline_at,
            asked.tenant,
            version=front.tasks[asked.task].version,
        )

    async def _run(self, requests: Requests, asked: Asked, job: Job, receive: Receive) -> Ended:
        """Let it in and return how it ended."""
        request, answered = self._let_in(requests, asked, job)
        listening = self._listening.begin(answered, receive)
        try:
            return await answered
        except asyncio.CancelledError:
            requests.withdraw(request)
            if answered.cancelled():
                raise ClientGoneError from None
            raise
        finally:
            self._listening.end(listening)

    async def _stream(self, requests: Requests, asked: Asked, job: Job, receive: Receive, send: Send) -> None:
        """Let it in and answer with its parts as they come."""
        hub = self._front.hub or Hub(now=self._front.clock.now)
        reader = open_reader(hub, job.id)
        try:
            request, answered = self._let_in(requests, asked, job)
            listening = self._listening.begin(answered, receive)
            try:
                ended = await stream_parts(reader, answered, send, [(REQUEST_ID, job.id.encode())])
            finally:
                self._listening.end(listening)
                requests.withdraw(request)  # nothing, when it has ended
        finally:
            hub.close(reader)
        if ended is not None:
            await self._answer(ended, {}, send)

    def _let_in(self, requests: Requests, asked: Asked, job: Job) -> "tuple[Request, asyncio.Future[Ended]]":
        """Return the request and its answer to come. Raises the refusal."""
        front, now = self._front, self._front.clock.now()
        deadly = barred(front, job, now=now)
        if deadly is not None:
            front.meters.for_task(asked.task).refused(deadly.code, 1)
            raise deadly
        over = self._pressure.budget_refusal(now=now)
        if over is not None:
            raise self._refusal(over, asked)
        answered: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        verdict = requests.offer(job, lambda ended: _set(answered, ended))
        if isinstance(verdict, Rejected):
            raise self._refusal(verdict, asked)
        front.meters.for_task(asked.task).admitted(1)
        self._pressure.tenant_takes(size_b=len(job.payload), now=now)
        return verdict, answered

    async def _answer(self, ended: Ended, heads: Heads, send: Send) -> None:
        request = ended.request
        headers: Headers = [
            (REQUEST_ID, request.job.id.encode()),
            (b"server-timing", timing(request, now=self._front.clock.now())),
        ]
        if ended.end is not End.DONE:
            await answer_end(ended, send, headers)
            return
        headers.append((LEVEL, b"%d" % request.level))
        if (word := level_word(request.level)) is not None:
            headers.append((b"forebay-degraded", word.encode()))
        output = ended.output or b"null"
        if output.startswith(REFERENCE) and await self._blobs.send_output(output, heads, send, extra=headers):
            return
        await answer(send, 200, output, [JSON, NO_STORE, *headers])

    async def _as_job(self, spec: TaskSpec, heads: Heads, body: Body, receive: Receive, send: Send) -> None:
        """Prefer: respond-async. 202 with a durable job; the deadline was of an answer, not of a job."""
        if self._front.lifecycle.draining:
            raise DrainingError(retry_after_s=DRAINING_RETRY_S)
        told = heads.get(PRIORITY_HEADER)
        text = await body.read(self._front.settings.body_bytes_max)
        submission = Submission(spec.name, msgspec.Raw(text), None if told is None else _priority(told))
        take_key(submission, heads)
        payload = decode_payload(text)
        lasting = replace(spec, deadline_s=None)
        await self._submitter.take(submission, payload, text, None, heads, receive, send, spec=lasting)


class Listening:
    """Hears clients hang up. Most requests are answered before anybody would look: those cost nothing."""

    def __init__(self) -> None:
        self._young: dict[int, tuple[asyncio.Future[Ended], Receive]] = {}  # since the last look
        self._older: dict[int, tuple[asyncio.Future[Ended], Receive]] = {}
        self._ears: dict[int, asyncio.Future[None]] = {}
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, answered: "asyncio.Future[Ended]", receive: Receive) -> int:
        """Listen, a while from now, to the client who waits for this answer, and cancel it when they go."""
        self._number += 1
        self._young[self._number] = (answered, receive)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GONE_LOOK_S, self._look)
        return self._number

    def end(self, number: int) -> None:
        """It was answered."""
        if self._young.pop(number, None) is None and self._older.pop(number, None) is None:
            ear = self._ears.pop(number, None)
            if ear is not None:
                ear.cancel()

    def _look(self) -> None:
        for number, (answered, receive) in self._older.items():
            self._ears[number] = asyncio.ensure_future(_hang_up(answered, receive))
        self._older, self._young = self._young, {}
        self._timer = None
        if self._older:
            self._timer = asyncio.get_running_loop().call_later(GONE_LOOK_S, self._look)


async def _hang_up(answered: "asyncio.Future[Ended]", receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    answered.cancel()


def _set(answered: "asyncio.Future[Ended]", ended: Ended) -> None:
    if not answered.done():
        answered.set_result(ended)


def _timeout_s(told: bytes) -> float:
    text = told.decode("latin-1").strip()
    rule = f"must be a time above 0 and up to {DEADLINE_MAX_S:g} s (seconds, or a text like 250ms)"
    try:
        found = duration_s(text)
    except ValueError:
        found = -1.0
    if not 0 < found <= DEADLINE_MAX_S:
        raise InvalidError(f"X-Request-Timeout {rule}", errors=(("X-Request-Timeout", rule),))
    return found


def _priority(told: bytes) -> int:
    text: Any = told.decode("latin-1").strip()
    return priority_of(int(text) if len(text) == 1 and text.isascii() and text.isdigit() else text)
