"""The routes that are not hot, on FastAPI; their errors go up to the door."""

from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp

from forebay.errors import ForebayError, MethodError, NotFoundError
from forebay.server.alerts import AlertDesk
from forebay.server.announcing import Announcer
from forebay.server.budgets import BudgetDesk
from forebay.server.cancelling import Canceller
from forebay.server.crons import CronDesk
from forebay.server.dead_letters import DeadLetters
from forebay.server.deliveries import Deliveries
from forebay.server.erase import Eraser
from forebay.server.front import Front
from forebay.server.health import Health
from forebay.server.linking import Linker
from forebay.server.listing import Lister
from forebay.server.openapi import Docs
from forebay.server.pressure import Pressure
from forebay.server.problems import InternalError, problem_body, problem_headers
from forebay.server.quarantine import QuarantineDesk
from forebay.server.queues import Queues
from forebay.server.routing import add_routes
from forebay.server.streams import StreamDesk

JOBS = "/v1/jobs"  # the door itself answers a POST there


def cold_routes(front: Front, pressure: Pressure) -> ASGIApp:
    """Return the application behind the hot routes."""
    api = FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={ForebayError: _problem, HTTPException: _not_routed, Exception: _broken},
    )
    docs = Docs(api, front)
    for part in (
        Lister(front),
        Canceller(front),
        Queues(front, pressure),
        Announcer(front, pressure),
        BudgetDesk(front),
        CronDesk(front),
        StreamDesk(front),
        Linker(front),
        DeadLetters(front, pressure),
        QuarantineDesk(front),
        Deliveries(front),
        Health(front),
        AlertDesk(front),
        Eraser(front),
        docs,
    ):
        add_routes(api, part.routes())
    return api


async def _problem(_: Request, error: Any) -> Response:
    body = problem_body(error)
    headers = {name.decode(): value.decode() for name, value in problem_headers(error, body)}
    return Response(body, error.status, headers)


async def _broken(request: Request, _: Any) -> Response:
    """A bug. It goes on up to the door, which logs it."""
    return await _problem(request, InternalError())


async def _not_routed(request: Request, error: Any) -> Response:
    if error.status_code == 405:
        allowed = ", ".join(_methods(request))
        response = await _problem(request, MethodError(f"allowed: {allowed}"))
        response.headers["allow"] = allowed
        return response
    return await _problem(request, NotFoundError("no such address"))


def _methods(request: Request) -> list[str]:
    """Return what the address of a request can be asked; a route knows only of itself."""
    found = {"POST"} if request.url.path == JOBS else set[str]()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods
    if "GET" in found:
        found.add("HEAD")
    return sorted(found)
