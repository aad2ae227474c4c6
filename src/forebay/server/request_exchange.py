"""RequestExchange: a plain POST /v1/predict/{task}: let in, withdrawn, answered with its output."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from forebay.core.basin import Asked
from forebay.core.requests import End, Ended, Request
from forebay.ports.requests import Requests
from forebay.server.answer import JSON, NO_STORE
from forebay.server.asking import Heads
from forebay.server.blobs import REFERENCE
from forebay.server.caller import Caller
from forebay.server.exchange import Connection, Exchange
from forebay.server.front import Front
from forebay.server.predict import LET_BY
from forebay.server.predict_answers import headers_of, problem_of_end
from forebay.server.problems import problem_headers
from forebay.server.way_in import WayIn

AnswerEnded = Callable[..., Awaitable[None]]  # (ended, heads, scope, send): how the door writes an answer
ADDRESS: Final = b"/v1/predict/"


class RequestExchange(Exchange):
    """One request."""

    __slots__ = ("_answer_ended", "_request", "_requests", "_way_in", "asked")
    route = "/v1/predict/{}"

    def __init__(
        self,
        connection: Connection,
        front: Front,
        heads: Heads,
        who: Caller,
        asked: Asked,
        requests: Requests,
        way_in: WayIn,
        answer_ended: AnswerEnded,
    ) -> None:
        super().__init__(connection, front, heads, who)
        self._requests = requests
        self._request: Request | None = None
        self._way_in = way_in
        self._answer_ended = answer_ended
        self.asked = asked

    def perform(self, body: bytes) -> None:
        """Let the request in."""
        way_in, asked = self._way_in, self.asked
        if way_in.references_in(asked.task, body):
            self.connection.take_long_way(body, {LET_BY: asked})
            return
        job = way_in.job(asked, body)
        self._request = way_in.let_in(self._requests, asked, job, self._ended)

    def gone(self) -> None:
        """The client has hung up: nobody waits for the output."""
        super().gone()
        request, self._request = self._request, None
        if request is not None:
            self._requests.withdraw(request)

    def _ended(self, ended: Ended) -> None:
        self._request = None
        if self.disconnected:
            return
        headers = headers_of(ended, now=self.front.clock.now())
        if ended.end is not End.DONE:
            error, body = problem_of_end(ended)
            self.finish(error.status, problem_headers(error, body) + headers, body)
            return
        output = ended.output or b"null"
        if output.startswith(REFERENCE):
            self._answer_large(ended)
            return
        length = (b"content-length", b"%d" % len(output))
        self.finish(200, [JSON, NO_STORE, *headers, length], output)

    def _answer_large(self, ended: Ended) -> None:
        answer_ended, heads = self._answer_ended, self.heads

        async def app(scope: Any, _receive: Any, send: Any) -> None:
            await answer_ended(ended, heads, scope, send)

        self.connection.answer_with(self, app)
