"""POST /v1/predict/{task}: a payload in, its output out, within a deadline or refused at once; no disk."""

import asyncio
from dataclasses import replace
from typing import Final

import msgspec

from forebay.core.basin import Asked
from forebay.core.job import Job
from forebay.core.requests import End, Ended
from forebay.core.task import TaskSpec
from forebay.errors import DrainingError, MediaTypeError, MethodError
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
from forebay.server.predict_answers import REQUEST_ID, answer_end, headers_of
from forebay.server.predict_stream import open_reader, stream_parts
from forebay.server.pressure import DRAINING_RETRY_S
from forebay.server.problems import ClientGoneError
from forebay.server.repeats import take_key
from forebay.server.submit import Submitter
from forebay.server.way_in import PRIORITY_HEADER, WayIn, priority_told
from forebay.server.wire import Submission, decode_payload

LET_BY: Final = "forebay.let_by"  # in a scope: the Asked of a request whose head was counted and looked at
LAIN_S: Final = "forebay.lain_s"  # and of one that was late read: so long it had been in its socket
GONE_LOOK_S = 0.02  # a client is listened to after its request has waited so long
_NOTHING: frozenset[str] = frozenset()


class Predictor:
    """The way in and out of requests."""

    def __init__(
        self,
        front: Front,
        way_in: WayIn,
        submitter: Submitter,
        blobs: BlobDesk,
    ) -> None:
        self._front = front
        self._way_in = way_in
        self._submitter = submitter
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
        way_in = self._way_in
        let_by: Asked | None = scope.get(LET_BY)
        asked = let_by or way_in.asked(
            spec, heads, caller().tenant, length, now=now, lain_s=scope.get(LAIN_S, 0.0)
        )
        if let_by is None:
            way_in.arrived(task, now=now)
        requests = way_in.basin(asked)
        refused = None if let_by else way_in.look(requests, asked)
        if refused is not None:
            raise way_in.refusal(refused, asked)
        text = await body.read(front.settings.body_bytes_max)
        found = way_in.references_in(task, text)
        claimed = await way_in.references.claim(found, spec) if found else ()
        try:
            job = way_in.job(asked, text)
            if accepts_events(heads):
                await self._stream(requests, asked, job, receive, send)
            else:
                await self.answer(await self._run(requests, asked, job, receive), heads, send)
        finally:
            way_in.references.release(claimed)

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

    async def _run(self, requests: Requests, asked: Asked, job: Job, receive: Receive) -> Ended:
        """Let it in and return how it ended."""
        answered: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        request = self._way_in.let_in(requests, asked, job, lambda ended: _set(answered, ended))
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
            answered: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
            request = self._way_in.let_in(requests, asked, job, lambda ended: _set(answered, ended))
            listening = self._listening.begin(answered, receive)
            try:
                ended = await stream_parts(reader, answered, send, [(REQUEST_ID, job.id.encode())])
            finally:
                self._listening.end(listening)
                requests.withdraw(request)  # nothing, when it has ended
        finally:
            hub.close(reader)
        if ended is not None:
            await self.answer(ended, {}, send)

    async def answer(self, ended: Ended, heads: Heads, send: Send) -> None:
        """Answer with how a request ended."""
        headers: Headers = headers_of(ended, now=self._front.clock.now())
        if ended.end is not End.DONE:
            await answer_end(ended, send, headers)
            return
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
        submission = Submission(spec.name, msgspec.Raw(text), None if told is None else priority_told(told))
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
