"""GET /v1/streams: what pipelines on this machine say of their streams and stages."""

from typing import Any

import msgspec
from fastapi import Request, Response

from forebay.server.front import Front
from forebay.server.routing import Route, json_response


class StreamView(msgspec.Struct):
    """One stream of a pipeline. `sent` is `served`, all of `dropped` and `in_flight` together. `p50_s` to
    `p99_s` count from the capture, of what was served lately. `alert`: 0.1 % or more was dropped."""

    pipeline: str
    state: str
    stream: str
    depth: int
    sent: int
    served: int
    in_flight: int
    dropped: dict[str, int]
    drop_ratio: float
    alert: bool
    degraded_ratio: float
    degraded: dict[str, int]
    fallback: int
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    run_p50_s: float | None
    run_p95_s: float | None
    run_p99_s: float | None
    source: dict[str, int]


class StreamStageView(msgspec.Struct):
    """One stage of a pipeline and the queue before it. The ratios are shares of the time since its start."""

    pipeline: str
    stage: str
    depth: int
    capacity: int
    size_bytes: int
    capacity_bytes: int | None
    oldest_age_s: float
    level: int
    replicas: int
    processes: bool
    calls: int
    handed_on: int
    dropped: dict[str, int]
    service_p50_s: float | None
    service_p99_s: float | None
    producer_wait_ratio: float
    consumer_idle_ratio: float
    restarts: dict[str, int]
    breaker: str | None
    breaker_trips: int
    last_error: str


class StreamList(msgspec.Struct):
    """All streams of the pipelines that run now and use the same data directory, and their stages."""

    items: list[StreamView]
    stages: list[StreamStageView]
    next_cursor: str | None = None


VIEWS = (StreamView, StreamStageView, StreamList)


class StreamDesk:
    """What is known of streams."""

    def __init__(self, front: Front) -> None:
        self._board = front.board

    def routes(self) -> tuple[Route, ...]:
        """Return the rows of the route table."""
        return (Route("GET", "/v1/streams", self.streams, "List streams", "streams", "StreamList"),)

    async def streams(self, _: Request) -> Response:
        """Answer every stream and stage of the pipelines that run."""
        board = self._board
        streams: list[Any] = [] if board is None else list(board.streams())
        stages: list[Any] = [] if board is None else list(board.stages())
        return json_response({"items": streams, "stages": stages, "next_cursor": None})
