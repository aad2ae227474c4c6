"""The OpenAPI 3.1 document: FastAPI's part, the hot routes by hand, the shapes from views; and its viewer."""

from collections.abc import Iterable
from importlib.resources import files
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from forebay.core.budget import FIELD
from forebay.server.access import rules_of
from forebay.server.alerts import VIEWS as ALERTS
from forebay.server.announcing import VIEWS as ANNOUNCING
from forebay.server.budgets import VIEWS as BUDGETS
from forebay.server.cancelling import VIEWS as CANCELLING
from forebay.server.crons import VIEWS as CRONS
from forebay.server.deliveries import VIEWS
from forebay.server.front import Front
from forebay.server.letter_views import ALL as LETTERS
from forebay.server.linking import VIEWS as LINKING
from forebay.server.predict_docs import describe_predict
from forebay.server.quarantine import VIEWS as QUARANTINE
from forebay.server.routing import Param, Route, answers, json_response, operation_id
from forebay.server.streams import VIEWS as STREAMS
from forebay.server.views import ALL

_REF = "#/components/schemas/"
EVENTS_TYPE = "text/event-stream"
_WAIT = Param("wait", "long poll: seconds or a duration, clamped to 60 s; answers at the first change")


async def _unused(_: Request) -> Response:
    raise NotImplementedError


# What the door serves itself. A test holds this table to what the door does.
HOT: tuple[Route, ...] = (
    Route("POST", "/v1/jobs", _unused, "Submit one job, or many as NDJSON", "jobs", None,
          (400, 404, 408, 413, 415, 422, 429, 503, 507)),
    Route("GET", "/v1/jobs/{job_id}", _unused, "Show a job", "jobs", "JobView", (404, 410, 422), (_WAIT,)),
    Route("PATCH", "/v1/jobs/{job_id}", _unused, "Give a waiting job another priority or task", "jobs",
          "JobView", (400, 404, 409, 410, 413, 415, 422, 429, 503)),
    Route("DELETE", "/v1/jobs/{job_id}", _unused, "Cancel a job", "jobs", "JobView", (404, 409, 410)),
    Route("GET", "/v1/jobs/{job_id}/result", _unused, "The result alone", "jobs", None, (404, 409, 410)),
    Route("GET", "/v1/jobs/{job_id}/events", _unused, "The life of a job as Server-Sent Events", "jobs",
          None, (404, 410, 422, 429, 503), media_type=EVENTS_TYPE),
    Route("POST", "/v1/predict/{task}", _unused, "One answer within its deadline, or a refusal at once",
          "requests", None, (400, 404, 408, 413, 415, 422, 429, 500, 503, 504)),
    Route("PUT", "/v1/blobs", _unused, "Store large bytes, streamed", "blobs", None,
          (400, 408, 413, 415, 422, 429, 503, 507)),
    Route("PUT", "/v1/streams/{stream}", _unused, "Send a frame to a pipeline of the server", "streams",
          "FrameVerdict", (400, 404, 408, 410, 413, 415, 422, 429, 503)),
    Route("POST", "/v1/streams/{stream}", _unused, "The same", "streams",
          "FrameVerdict", (400, 404, 408, 410, 413, 415, 422, 429, 503)),
    Route("GET", "/v1/blobs/{blob_id}", _unused, "The bytes, or one range of them", "blobs", None,
          (404, 416, 503), (), None, "application/octet-stream"),
    Route("DELETE", "/v1/blobs/{blob_id}", _unused, "Erase a blob", "blobs", "ErasedView",
          (404, 409, 422, 503),
          (Param("force", "1: also one that a job names; the job fails when it reads it"),)),
)  # fmt: skip


class Docs:
    """The document, its viewer, and what `/` says."""

    def __init__(self, api: FastAPI, front: Front) -> None:
        self._api = api
        self._front = front
        self._document: bytes | None = None

    def routes(self) -> tuple[Route, ...]:
        """Return the rows of the route table."""
        html = (None, (), (), None, "text/html")
        return (
            Route(
                "GET", "/", self.root, "The dashboard; where to go from here as JSON", "docs", any_query=True
            ),
            Route("GET", "/openapi.json", self.document, "This document", "docs", any_query=True),
            Route("GET", "/docs", self.viewer, "The document for people", "docs", *html, any_query=True),
        )

    async def root(self, request: Request) -> Response:
        """Answer the dashboard to a browser, and where things are to a program."""
        if wants_page(request.headers.get("accept", "")):
            return page("dashboard.html")
        links = {
            "dashboard": "/",
            "docs": "/docs",
            "openapi": "/openapi.json",
            "tasks": "/v1/tasks",
            "queues": "/v1/queues",
        }
        links |= {"jobs": "/v1/jobs", "health": "/healthz", "ready": "/readyz", "metrics": "/metrics"}
        return json_response({"name": "forebay", "version": self._front.version, "links": links})

    async def document(self, _: Request) -> Response:
        """Answer the OpenAPI document."""
        if self._document is None:
            self._document = msgspec.json.encode(build_document(self._api, self._front))
        return Response(self._document, 200, {"cache-control": "no-cache"}, "application/json")

    async def viewer(self, _: Request) -> Response:
        """Answer a page that renders the document; nothing is loaded from elsewhere."""
        return page("docs.html")


def wants_page(accept: str) -> bool:
    """Say whether a caller names HTML as something it takes: browsers do, programs do not."""
    return any(part.split(";")[0].strip().lower() == "text/html" for part in accept[:1000].split(","))


def page(name: str) -> Response:
    """Return one of our pages: it loads nothing from elsewhere, and stands in no frame of another's."""
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    )
    headers = {"content-security-policy": policy, "x-content-type-options": "nosniff", "vary": "accept"}
    return Response(
        files("forebay.server").joinpath(name).read_bytes(), 200, headers, "text/html; charset=utf-8"
    )


def build_document(api: FastAPI, front: Front) -> dict[str, Any]:
    """Return the whole document."""
    document: dict[str, Any] = get_openapi(
        title="Forebay", version=front.version, openapi_version="3.1.0", routes=api.routes,
        description="The basin in front of your models: durable jobs, honest refusals, batches.",
    )  # fmt: skip
    for route in HOT:
        document["paths"].setdefault(route.path, {})[route.method.lower()] = _operation(route)
    _describe_submit(document["paths"]["/v1/jobs"]["post"], front)
    describe_predict(document["paths"]["/v1/predict/{task}"]["post"])
    document["paths"]["/v1/jobs/{job_id}"]["delete"]["responses"]["202"] = {
        "description": "It runs; its handler is being told",
        "content": {"application/json": {"schema": {"$ref": _REF + "JobView"}}},
    }
    document["paths"]["/v1/jobs/{job_id}"]["patch"]["requestBody"] = {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": _REF + "AmendAsk"}}},
    }
    document["paths"]["/v1/jobs/{job_id}"]["get"]["responses"]["304"] = {"description": "Unchanged"}
    _describe_events(document["paths"]["/v1/jobs/{job_id}/events"]["get"])
    _describe_blobs(document["paths"])
    shapes = (
        *ALL,
        *LETTERS,
        *VIEWS,
        *CANCELLING,
        *BUDGETS,
        *ALERTS,
        *ANNOUNCING,
        *CRONS,
        *LINKING,
        *QUARANTINE,
        *STREAMS,
    )
    _, components = msgspec.json.schema_components(shapes, ref_template=_REF + "{name}")
    for spec in front.tasks.values():
        components[f"{spec.name}_input"] = dict(spec.input_schema)
        components[f"{spec.name}_output"] = dict(spec.output_schema)
    document.setdefault("components", {})["schemas"] = components
    _describe_keys(document)
    return document


def _describe_blobs(paths: dict[str, Any]) -> None:
    put = paths["/v1/blobs"]["put"]
    anything = {"schema": {"type": "string", "format": "binary"}}
    put["requestBody"] = {"required": True, "content": {"*/*": anything}}
    put["parameters"] = [
        {"name": name, "in": "header", "required": False, "schema": {"type": "string"},
         "description": "sha-256=:base64: or sha-512; nothing is stored when the bytes are others"}
        for name in ("Content-Digest", "Repr-Digest")
    ]  # fmt: skip
    del put["responses"]["200"]
    view = {"application/json": {"schema": {"$ref": _REF + "BlobView"}}}
    put["responses"]["201"] = {"description": "Stored, whole and durable", "content": view}
    get = paths["/v1/blobs/{blob_id}"]["get"]
    get["responses"]["206"] = {"description": "The range", "content": {"application/octet-stream": anything}}
    get["responses"]["304"] = {"description": "Unchanged"}
    binary = {"description": "The result, with its media type", "content": {"*/*": anything}}
    paths["/v1/jobs/{job_id}/result"]["get"]["responses"]["200"] = binary


def _describe_keys(document: dict[str, Any]) -> None:
    """Say which scope each route wants, from the table that the door goes by."""
    document["components"]["securitySchemes"] = {
        "api_key": {"type": "http", "scheme": "bearer", "description": "Not asked where no keys are set."}
    }
    problem = {"application/problem+json": {"schema": {"$ref": _REF + "ProblemView"}}}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            rule = rules_of(path).get(method.upper())
            if rule is not None and rule.scope is not None:
                operation["security"] = [{"api_key": [rule.scope.value]}, {}]
                for status, text in (("401", "No valid key"), ("403", "The key lacks the scope")):
                    operation["responses"].setdefault(status, {"description": text, "content": problem})


def _operation(route: Route) -> dict[str, Any]:
    names: Iterable[str] = (part[1:-1] for part in route.path.split("/") if part.startswith("{"))
    parameters = [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in names]
    parameters += [
        {"name": p.name, "in": "query", "required": False, "description": p.text, "schema": {"type": p.kind}}
        for p in route.params
    ]
    return {
        "summary": route.text,
        "operationId": operation_id(route.method, route.path),
        "tags": [route.tag],
        "parameters": parameters,
        "responses": {str(status): value for status, value in answers(route).items()},
    }


def _describe_submit(operation: dict[str, Any], front: Front) -> None:
    job = {"schema": {"$ref": _REF + "JobView"}}
    operation["description"] = "Tasks: " + ", ".join(
        f"{spec.name} (payload: #/components/schemas/{spec.name}_input)" for spec in front.tasks.values()
    )
    operation["parameters"] = [
        {"name": "Idempotency-Key", "in": "header", "required": False, "schema": {"type": "string"},
         "description": "the same key and body is the same job; not with NDJSON"},
        {"name": "Prefer", "in": "header", "required": False, "schema": {"type": "string"},
         "description": "wait=10: answer 200 with the finished job if it ends in time, else 202; with "
         "Accept: text/event-stream 200 with the events of the job, to its end"},
        {"name": FIELD, "in": "header", "required": False, "schema": {"type": "string"},
         "description": "ci=300/s: all who name this budget share its rate; 429 with the time of their turn"},
    ]  # fmt: skip
    operation["requestBody"] = {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": _REF + "SubmissionView"}},
            "application/x-ndjson": {"schema": {"$ref": _REF + "SubmissionView"}},
        },
    }
    responses = operation["responses"]
    responses["202"] = {"description": "Stored", "content": {"application/json": job}}
    responses["200"] = {
        "description": "The finished job (Prefer: wait, or a replay), its events (Accept: text/event-stream "
        "besides), or one verdict per NDJSON line",
        "content": {
            "application/json": job,
            "application/x-ndjson": {"schema": {"$ref": _REF + "VerdictView"}},
            EVENTS_TYPE: {"schema": {"type": "string"}},
        },
    }


def _describe_events(operation: dict[str, Any]) -> None:
    operation["description"] = (
        "First how the job stands now, then what is behind Last-Event-ID, then what comes. Events: status, "
        "eta, progress, partial, restart, gap, closing, and done with the finished job, the last one."
    )
    operation["parameters"].append(
        {"name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "string"},
         "description": "the id of the last event seen; one that nothing is known of is answered with a gap"}
    )  # fmt: skip
    operation["responses"]["200"]["content"] = {EVENTS_TYPE: {"schema": {"type": "string"}}}
    operation["responses"]["204"] = {"description": "Last-Event-ID says that the end was seen"}
