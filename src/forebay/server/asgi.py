"""Door: the one ASGI application. Hot routes are plain ASGI; everything else goes to FastAPI behind it."""

from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from forebay.core.requests import Ended
from forebay.errors import (
    ForbiddenError,
    ForebayError,
    MediaTypeError,
    MethodError,
    NotFoundError,
    UnauthorizedError,
)
from forebay.server.access import ADMIN_PLANE, TENANT_HEADER, challenge, route_of
from forebay.server.amend import Amender
from forebay.server.answer import Body, Headers, Receive, Send, answer_problem
from forebay.server.asking import Doorman, Heads, Scope, media_type, query_of
from forebay.server.blobs import BlobDesk
from forebay.server.budgets import forget_budget, name_budget
from forebay.server.bulk import Bulk
from forebay.server.caller import LOCAL, set_caller
from forebay.server.cold import cold_routes
from forebay.server.deciding import Decider
from forebay.server.dialects import is_dialect
from forebay.server.events import Events
from forebay.server.front import Front
from forebay.server.hatch import Hatch
from forebay.server.job_exchange import Rest
from forebay.server.links import BEARER, is_link
from forebay.server.live import Hub
from forebay.server.predict import Predictor
from forebay.server.pressure import Pressure
from forebay.server.problems import ClientGoneError, InternalError
from forebay.server.schema import compile_checks
from forebay.server.show import Shower
from forebay.server.started import Started
from forebay.server.streams import FrameDoor
from forebay.server.submit import Submitter
from forebay.server.waiters import Waiters
from forebay.server.way_in import WayIn

if TYPE_CHECKING:
    from forebay.server.dialects.desk import Dialects

_JOBS = "/v1/jobs"
_PREDICT = "/v1/predict/"
_JOB = "/v1/jobs/"
_STREAM = "/v1/streams/"
_BLOBS = "/v1/blobs"
_BLOB = "/v1/blobs/"
_DELIVERIES = "/deliveries"  # below a job and not hot; no job id holds it
_LINK = "/link"  # what ends so makes a link, and is not hot either
_CANCEL = "/v1/jobs/cancel"  # nor is this, of many
_OF_WORKERS = frozenset({"/healthz", "/readyz", "/metrics", "/v1/workers", "/v1/nodes", "/v1/alerts"})
_NOTHING: frozenset[str] = frozenset()
_BELOW = frozenset({"result", "events"})  # what one job has below it
_NDJSON_TYPES = frozenset({"application/x-ndjson", "application/ndjson"})


class Door:
    """The front door. Build it with `make_app`."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.waiters = Waiters(front.broker)
        pressure = Pressure(front)
        self._doorman = Doorman(front.hosts_allowed)
        self._watchman = front.watchman
        checks = compile_checks(front.tasks)
        events = Events(front, pressure, front.hub or Hub(now=front.clock.now))
        decider = Decider(front, pressure, checks)
        self._submitter = Submitter(front, pressure, self.waiters, decider, events)
        self._amender = Amender(front, pressure, checks)
        self._bulk = Bulk(front, pressure, decider)
        self._blobs = BlobDesk(front)
        self._frames = FrameDoor(front)
        way_in = WayIn(front, pressure, decider.references, checks)
        self._predictor = Predictor(front, way_in, self._submitter, self._blobs)
        self.hatch = Hatch(
            front,
            self._doorman,
            way_in,
            decider,
            self._submitter,
            answer_ended=self.answer_ended,
            answer_rest=self.answer_rest,
        )
        self._shower = Shower(front, pressure, self.waiters, self._blobs)
        self._pressure = pressure
        self._events = events
        self._dialects: Dialects | None = None
        self._cold: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Never raises for what a client did."""
        if scope["type"] != "http":
            await _other(scope, receive, send)
            return
        body: Body | None = None
        started = Started(send, self.front)
        try:
            heads = self._doorman.check(scope)
            path: str = scope["path"]
            forget_budget()
            if is_dialect(path):
                await self._speak(scope, heads, body := Body(receive, heads), receive, started)
                return
            if is_link(scope):
                scope = self.front.links.opened(scope, now=self.front.clock.now())
                set_caller(BEARER)
            elif self._watchman.watches or TENANT_HEADER in heads:
                body = Body(receive, heads)  # for a refusal: it is not read before
                who = self._watchman.admit(scope, heads, now=self.front.clock.now())
                set_caller(who)
                started.quota = self._watchman.quotas.get(who.tenant)
            else:
                set_caller(LOCAL)
            if path == _JOBS and scope["method"] == "POST":
                body = body or Body(receive, heads)
                await self._post(scope, heads, body, receive, started.send)
            elif path.endswith(_LINK):
                await self._behind(scope, receive, started)
            elif path.startswith(_JOB) and _DELIVERIES not in path and path != _CANCEL:
                await self._job(path[len(_JOB) :], scope, heads, receive, started.send, body)
            elif path.startswith(_PREDICT):
                body = body or Body(receive, heads)
                task = path[len(_PREDICT) :]
                await self._predictor.predict(task, scope, heads, body, receive, started.send)
            elif path.startswith((_BLOBS, _STREAM)):
                body = Body(receive, heads)
                await self._bytes(path, scope, heads, body, started.send)
            else:
                await self._behind(scope, receive, started)
        except ClientGoneError:
            return
        except ForebayError as error:
            await self._refuse(error, body, scope, started)
        except Exception as error:
            self._log_failure(scope, error)
            await self._refuse(InternalError(), body, scope, started)

    async def _speak(
        self, scope: Scope, heads: Heads, body: Body, receive: Receive, started: Started
    ) -> None:
        """Answer in another server's dialect. Who may do nothing here is refused before his body is read;
        what he may do our own routes ask."""

        def admit() -> None:
            if self._watchman.watches:
                method = "POST" if scope["method"] == "POST" else "GET"
                asked = {**scope, "path": _JOBS, "method": method}
                self._watchman.admit(asked, heads, now=self.front.clock.now())

        if self._dialects is None:
            from forebay.server.dialects.desk import Dialects

            self._dialects = Dialects(self.front, self)
        await self._dialects.answer(scope, body, receive, started.send, admit)

    async def answer_ended(self, ended: Ended, heads: Heads, scope: Scope, send: Send) -> None:
        """Write the answer of a request that the hatch took. Never raises for what a client did."""
        await self.answer_rest(lambda send: self._predictor.answer(ended, heads, send), scope, send)

    async def answer_rest(self, rest: Rest, scope: Scope, send: Send) -> None:
        """Have `rest(send)` write the answer of what the hatch took. Never raises for what a client did."""
        started = Started(send, self.front)
        try:
            await rest(started.send)
        except ClientGoneError:
            return
        except ForebayError as error:
            await self._refuse(error, None, scope, started)
        except Exception as error:
            self._log_failure(scope, error)
            await self._refuse(InternalError(), None, scope, started)

    def _log_failure(self, scope: Scope, error: Exception) -> None:
        route = route_of(scope["path"])
        self.front.log.exception("request_failed", route=route, error=type(error).__name__)  # noqa: LOG004 - called by handlers

    async def _post(self, scope: Scope, heads: Heads, body: Body, receive: Receive, send: Send) -> None:
        if scope["query_string"]:
            query_of(scope, _NOTHING)
        kind = media_type(heads)
        name_budget(self.front, heads)
        if kind == "application/json":
            await self._submitter.submit(heads, body, receive, send)
        elif kind in _NDJSON_TYPES:
            await self._bulk.submit(heads, body, send)
        else:
            # No Content-Type is no JSON: a browser can be made to send such a body across sites unasked.
            raise MediaTypeError("Content-Type must be application/json, or application/x-ndjson for many")

    async def _job(
        self, rest: str, scope: Scope, heads: Heads, receive: Receive, send: Send, body: Body | None
    ) -> None:
        job_id, slash, below = rest.partition("/")
        method = scope["method"]
        if not job_id or (slash and below not in _BELOW):
            raise NotFoundError("no such address")
        if below == "events" and method in {"GET", "HEAD"}:
            await self._events.stream(job_id, scope, heads, receive, send)
            return
        if method == "HEAD":
            method, send = "GET", _without_body(send)
        if method == "GET":
            if slash:
                await self._shower.result(job_id, scope, heads, send)
            else:
                await self._shower.show(job_id, scope, heads, receive, send)
        elif method == "DELETE" and not slash:
            await self._shower.cancel(job_id, scope, send)
        elif method == "PATCH" and not slash:
            await self._amender.amend(job_id, scope, heads, body or Body(receive, heads), send)
        else:
            raise MethodError("allowed: GET, HEAD" if slash else "allowed: GET, HEAD, DELETE, PATCH")

    async def _bytes(self, path: str, scope: Scope, heads: Heads, body: Body, send: Send) -> None:
        if path.startswith(_STREAM):
            await self._frames.put(path[len(_STREAM) :], scope, heads, body, send)
        else:
            await self._blob(path, scope, heads, body, send)

    async def _blob(self, path: str, scope: Scope, heads: Heads, body: Body, send: Send) -> None:
        method, blob_id = scope["method"], path.removeprefix(_BLOB)
        if path == _BLOBS:
            if method != "PUT":
                raise MethodError("allowed: PUT")
            await self._blobs.put(scope, heads, body, send)
        elif not path.startswith(_BLOB) or "/" in blob_id:
            raise NotFoundError("no such address")
        elif method in {"GET", "HEAD"}:
            await self._blobs.get(blob_id, scope, heads, send, head_only=method == "HEAD")
        elif method == "DELETE":
            await self._blobs.delete(blob_id, scope, send)
        else:
            raise MethodError("allowed: DELETE, GET, HEAD")

    def warm(self) -> ASGIApp:
        """Build what is behind the hot routes, once; it takes tens of milliseconds."""
        if self._cold is None:
            self._cold = cold_routes(self.front, self._pressure)
        return self._cold

    async def _behind(self, scope: Scope, receive: Receive, started: Started) -> None:
        cold = self.warm()
        if scope["method"] == "HEAD":
            await cold({**scope, "method": "GET"}, receive, _without_body(started.send))
        else:
            await cold(scope, receive, started.send)

    async def _refuse(self, error: ForebayError, body: Body | None, scope: Scope, started: Started) -> None:
        if started.yes:
            return
        extra: Headers = []
        if isinstance(error, MethodError):
            extra.append((b"allow", str(error).removeprefix("allowed: ").encode()))
        elif isinstance(error, UnauthorizedError | ForbiddenError):
            extra.append(challenge(error))
        close = error.code in {"misdirected", "headers_too_large", "body_timeout"}
        send = _without_body(started.send) if scope["method"] == "HEAD" else started.send
        await answer_problem(send, error, body=body, close=close, extra=extra)

    def close(self) -> None:
        """Let every waiter and every reader of events go."""
        self.waiters.close()
        self._events.close()


class AdminDoor:
    """The same door as the admin listener shows it: what is kept from the public one is answered here."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._door({**scope, ADMIN_PLANE: True}, receive, send)


class WorkDoor:
    """The same door of a process that only works: how it is, what it measured, and nothing else."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["path"] not in _OF_WORKERS:
            await answer_problem(send, NotFoundError("this process only works: ask `forebay api`"))
            return
        await self._door({**scope, ADMIN_PLANE: True}, receive, send)


def _without_body(send: Send) -> Send:
    async def head(message: Any) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return head


async def _other(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            kind = message["type"].removeprefix("lifespan.")
            await send({"type": f"lifespan.{kind}.complete"})
            if kind == "shutdown":
                return
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1002})


def make_app(front: Front) -> Door:
    """Return the ASGI application in front of `front`. Raises AppError for an unusable input schema."""
    return Door(front)
