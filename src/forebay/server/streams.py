"""GET /v1/streams: what pipelines on this machine say of their streams and stages."""

from typing import Any, Final

import msgspec
from fastapi import Request, Response

from forebay.errors import MethodError, NotFoundError, QueueFullError, StreamEndedError, TooLargeError
from forebay.server.answer import JSON, NO_STORE, Body, Headers, Send, answer
from forebay.server.asking import Heads, Scope, media_type, query_of
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


_NOTHING: Final[frozenset[str]] = frozenset()


class FrameVerdict(msgspec.Struct):
    """What became of a frame that was sent. `reason`: why it was not taken. `credits`: so many more have
    room; `every`: one in so many is wanted."""

    stream: str
    seq: int
    taken: bool
    reason: str | None
    credits: int | None
    every: int
    retry_after_s: float | None


class FrameDoor:
    """PUT and POST /v1/streams/{name}: a frame for a pipeline that this server runs."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def put(self, stream: str, scope: Scope, heads: Heads, body: Body, send: Send) -> None:
        """Hand one frame on: 202 with what became of it. Raises a ForebayError for every refusal."""
        if scope["method"] not in {"PUT", "POST"}:
            raise MethodError("allowed: POST, PUT")
        query_of(scope, _NOTHING)
        frames = self._front.frames
        most = None if frames is None else frames.bytes_max(stream)
        if frames is None or most is None:
            raise NotFoundError("no pipeline takes such a stream")
        if self._front.lifecycle.draining:
            raise StreamEndedError("the server is going away: nothing more is taken in")
        media_type(heads)
        if body.length is not None and body.length > most:
            raise TooLargeError(f"a frame may have {most} bytes here", limit=most)
        kind = heads.get(b"content-type")
        verdict = await frames.push(
            stream,
            heads.get(b"forebay-frame", b"{}"),
            await body.read(most),
            None if kind is None else kind.decode("latin-1")[:100],
        )
        if verdict["reason"] == "held_off":
            wait_s = verdict["retry_after_s"] or 1.0
            raise QueueFullError(f"{stream} is to send nothing now", retry_after_s=wait_s)
        headers: Headers = [JSON, NO_STORE]
        if verdict["credits"] is not None:
            headers.append((b"forebay-credits", b"%d" % verdict["credits"]))
        await answer(send, 202, msgspec.json.encode(verdict), headers)


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


VIEWS = (StreamView, StreamStageView, StreamList, FrameVerdict)
