"""Liveness, readiness, metrics and workers: the truth from memory, never a wait for the store."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec
from fastapi import Request, Response

from forebay.errors import StoreUnavailableError
from forebay.ports.spool import UNSWEPT, spool_of
from forebay.server.front import Front
from forebay.server.routing import Route, json_response
from forebay.server.times import stamp
from forebay.server.views import HealthView

READY_RETRY_S = 5


class Health:
    """How this process is."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def routes(self) -> tuple[Route, ...]:
        """Return the rows of the route table."""
        return (
            Route("GET", "/healthz", self.alive, "Alive", "health", "HealthView", any_query=True),
            Route("GET", "/readyz", self.ready, "Ready for work", "health", "HealthView", (503,),
                  any_query=True),
            Route("GET", "/metrics", self.metrics, "Prometheus metrics", "health", None, (), (), None,
                  "text/plain", any_query=True),
            Route("GET", "/v1/workers", self.workers, "List replicas", "workers", "WorkerList"),
            Route("GET", "/v1/nodes", self.nodes, "List nodes", "workers", "NodeList"),
        )  # fmt: skip

    async def alive(self, _: Request) -> Response:
        """Answer that the loop turns."""
        return json_response(HealthView("ok"))

    async def ready(self, _: Request) -> Response:
        """Answer whether new work is taken and gets done, and if not, why."""
        reason = unready_reason(self._front)
        if reason is None:
            return json_response(HealthView("ready"))
        return json_response(HealthView("unready", reason), 503, {"retry-after": str(READY_RETRY_S)})

    async def metrics(self, request: Request) -> Response:
        """Answer the exposition text."""
        text, kind = self._front.meters.render(request.headers.get("accept", "")[:1000])
        return Response(text, 200, {"cache-control": "no-store"}, kind)

    async def workers(self, _: Request) -> Response:
        """Answer every replica of the node in this process, and of the nodes that share its engine."""
        sides = (self._front.node, self._front.neighbours)
        items = [_shown(worker) for side in sides if side is not None for worker in side.workers()]
        return json_response({"items": items, "next_cursor": None})

    async def nodes(self, _: Request) -> Response:
        """Answer every node, the one first whose end would cost least."""
        nodes = () if self._front.neighbours is None else self._front.neighbours.nodes()
        items = [{**node, "started_at": stamp(cast("float", node["started_at"]))} for node in nodes]
        return json_response({"items": items, "next_cursor": None})


def unready_reason(front: Front) -> str | None:
    """Return why this process should get no new work, None when it should."""
    if front.lifecycle.draining:
        return "draining"
    now = front.clock.now()
    spool = spool_of(front.broker)
    spools = spool is not None and spool.has_room(now)
    problem = front.lifecycle.store_problem(now=now)
    if problem is not None and not (spools and problem.code == StoreUnavailableError.code):
        return problem.code
    reason = None if front.node is None else front.node.unready_reason()
    if reason is not None and spools and reason.startswith(UNSWEPT):
        reason = None  # what comes is taken meanwhile
    return front.sender.unready_reason() if reason is None and front.sender is not None else reason


def _shown(worker: Mapping[str, object]) -> dict[str, object]:
    shown = dict(worker)
    started = shown.get("started_at")
    if isinstance(started, float | int):
        shown["started_at"] = stamp(started)
    breakers = cast("Iterable[Mapping[str, Any]]", shown.get("breakers") or ())
    shown["breakers"] = [
        {**one, "since": stamp(one["since"]) if one.get("since") else None} for one in breakers
    ]
    return {key: msgspec.to_builtins(value) for key, value in shown.items()}
