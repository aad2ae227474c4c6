"""JobExchange: a plain POST /v1/jobs of one job: decided on at once, answered when it is durable."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from forebay.core.admission import Accepted
from forebay.core.job import Job, Receipt
from forebay.errors import ForebayError
from forebay.server.answer import Send
from forebay.server.asking import Heads
from forebay.server.caller import Caller
from forebay.server.deciding import Decider, accepted_headers
from forebay.server.exchange import Connection, Exchange
from forebay.server.front import Front
from forebay.server.storing import count_stored, not_stored
from forebay.server.submit import Submitter

ADDRESS: Final = b"/v1/jobs"
Rest = Callable[[Send], Awaitable[None]]
AnswerRest = Callable[..., Awaitable[None]]  # (rest, scope, send): how the door answers what takes longer


class JobExchange(Exchange):
    """One submission. What is stored stays stored when its client goes meanwhile."""

    __slots__ = ("_answer_rest", "_decider", "_submitter")
    route = "/v1/jobs"

    def __init__(
        self,
        connection: Connection,
        front: Front,
        heads: Heads,
        who: Caller,
        decider: Decider,
        submitter: Submitter,
        answer_rest: AnswerRest,
    ) -> None:
        super().__init__(connection, front, heads, who)
        self._decider = decider
        self._submitter = submitter
        self._answer_rest = answer_rest

    def perform(self, body: bytes) -> None:
        """Decide on the job and hand it to the engine."""
        submitter = self._submitter
        decided = self._decider.decided(body, self.heads)
        if decided is None:
            self.connection.take_long_way(body, {})
            return
        job, verdict = decided
        if isinstance(verdict, Accepted):
            self._store(job)
        elif job.idempotency_key is None:
            raise self._decider.refusal(verdict, job.task, now=job.created_at)
        else:  # a repeat of what was accepted is answered all the same
            self._go_on(lambda send: submitter.answer_known(job, verdict, send))

    def _store(self, job: Job) -> None:
        try:
            stored = asyncio.ensure_future(self.front.broker.enqueue((job,), now=job.created_at))
        except Exception as error:
            told = not_stored(self.front, (job,), error)
            raise told from told.__cause__
        # An idle connection keeps its last exchange, which must keep no payload.
        stored.add_done_callback(partial(self._stored, job))

    def _stored(self, job: Job, stored: "asyncio.Future[list[Receipt]]") -> None:
        if stored.cancelled():  # the loop ends
            return
        try:
            receipts = stored.result()
        except Exception as error:
            self.refuse(not_stored(self.front, (job,), error))
            return
        try:
            count_stored(self.front, (job,), receipts, now=job.created_at)
            self._answer(job, receipts[0])
        except ForebayError as error:
            self.refuse(error)
        except Exception as error:
            self.failed(error)

    def _answer(self, job: Job, receipt: Receipt) -> None:
        submitter = self._submitter
        body = self._decider.accepted(job, receipt)
        if body is None:
            self._go_on(lambda send: submitter.answer_receipt(job, receipt, send))
        elif not self.disconnected:
            headers = accepted_headers(job)
            headers.append((b"content-length", b"%d" % len(body)))
            self.finish(202, headers, body)

    def _go_on(self, rest: Rest) -> None:
        """Answer with what has to wait for something."""
        answer_rest = self._answer_rest

        async def app(scope: Any, _receive: Any, send: Any) -> None:
            await answer_rest(rest, scope, send)

        if not self.disconnected:
            self.connection.answer_with(self, app)
