"""Deliveries of one job: what became of its callback, and once more."""

import msgspec
from fastapi import Request, Response

from forebay.core.outbox import Delivery
from forebay.errors import StateConflictError
from forebay.server.answer import Body
from forebay.server.asking import query_of
from forebay.server.front import Front
from forebay.server.routing import Route, json_response
from forebay.server.storing import record_of, written
from forebay.server.times import stamp

_NOTHING: frozenset[str] = frozenset()


class TryView(msgspec.Struct):
    """One try to tell a callback; `status` is null when there was no answer."""

    number: int
    at: str
    seconds: float
    status: int | None
    detail: str


class DeliveryView(msgspec.Struct):
    """What became of a callback. `webhook_id` is the same at every try. `tries` keeps the newest 20."""

    webhook_id: str
    url: str
    state: str
    tries_count: int
    since: str
    next_try_at: str | None
    ended_at: str | None
    tries: list[TryView]


class DeliveryList(msgspec.Struct):
    """The deliveries of a job: none before its end or without a callback, else one."""

    items: list[DeliveryView]
    next_cursor: str | None = None


VIEWS = (DeliveryView, DeliveryList)


class Deliveries:
    """What is known about telling a callback."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def routes(self) -> tuple[Route, ...]:
        """Return the rows of the route table."""
        path, tag = "/v1/jobs/{job_id}/deliveries", "webhooks"
        return (
            Route("GET", path, self.show, "Show what became of a job's callback", tag, "DeliveryList",
                  (404, 410)),
            Route("POST", path + "/replay", self.replay, "Tell the callback once more", tag, "DeliveryList",
                  (404, 409, 410, 503)),
        )  # fmt: skip

    async def show(self, request: Request) -> Response:
        """Answer the deliveries of a job: one at most, none before its end."""
        query_of(request.scope, _NOTHING)
        job_id, now = request.path_params["job_id"], self._front.clock.now()
        await record_of(self._front, job_id, now=now)
        row = await self._front.broker.outbox.get(job_id, now=now)
        return json_response(DeliveryList([] if row is None else [_shown(row)]))

    async def replay(self, request: Request) -> Response:
        """Make the delivery due at once, with its day of tries anew. One that is being sent stays so."""
        query_of(request.scope, _NOTHING)
        await Body(request.receive, dict(request.scope["headers"])).read(1024)
        job_id, now = request.path_params["job_id"], self._front.clock.now()
        record = await record_of(self._front, job_id, now=now)
        if record.job.callback_url is None:
            raise StateConflictError("the job has no callback_url")
        row = await written(self._front, self._front.broker.outbox.replay(job_id, now=now))
        if row is None:
            raise StateConflictError(f"the job is {record.standing.state.value}: it is told of its end")
        self._front.log.info("delivery_replayed", job_id=job_id, tries=row.tries)
        return json_response(DeliveryList([_shown(row)]))


def _shown(row: Delivery) -> DeliveryView:
    tries = [
        TryView(tried.number, stamp(tried.at), round(tried.seconds, 6), tried.status, tried.detail)
        for tried in row.log
    ]
    return DeliveryView(
        row.message_id,
        row.url,
        row.state.value,
        row.tries,
        stamp(row.since),
        None if row.due_at is None else stamp(row.due_at),
        None if row.ended_at is None else stamp(row.ended_at),
        tries,
    )
