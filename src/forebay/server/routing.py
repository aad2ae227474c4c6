"""Routes: a table of what FastAPI serves, with what the OpenAPI document says of each."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from fastapi import FastAPI, Request, Response

from forebay.server.asking import query_of

Endpoint = Callable[[Request], Awaitable[Response]]
JSON_TYPE = "application/json"
PROBLEM_TYPE = "application/problem+json"
ANY_KEY = "KEY"  # ends the name of a parameter that stands for many: metadata.KEY


class Param(NamedTuple):
    """One query parameter."""

    name: str
    text: str
    kind: str = "string"


class Route(NamedTuple):
    """One row of the table."""

    method: str
    path: str
    endpoint: Endpoint
    text: str
    tag: str
    answer: str | None = None  # name of the shape of a 200
    problems: tuple[int, ...] = ()
    params: tuple[Param, ...] = ()
    body: str | None = None
    media_type: str = JSON_TYPE
    any_query: bool = False  # for probes and documents: parameters that only go round caches are ignored


def add_routes(api: FastAPI, routes: Sequence[Route]) -> None:
    """Register every route."""
    for route in routes:
        api.add_api_route(
            route.path,
            route.endpoint if route.any_query else _strict(route),
            methods=[route.method],
            summary=route.text,
            tags=[route.tag],
            response_model=None,
            response_class=Response,
            operation_id=operation_id(route.method, route.path),
            responses=answers(route),
            openapi_extra=_extra(route),
        )


def _strict(route: Route) -> Endpoint:
    """Return the endpoint behind the one rule of queries: a parameter that the table does not name is
    refused, so that a typing error is never a filter that silently does nothing."""
    told = [param.name for param in route.params]
    names = frozenset(name for name in told if not name.endswith(ANY_KEY))
    prefixes = tuple(name.removesuffix(ANY_KEY) for name in told if name.endswith(ANY_KEY))
    endpoint = route.endpoint

    async def checked(request: Request) -> Response:
        query_of(request.scope, names, prefixes=prefixes)
        return await endpoint(request)

    return checked


def operation_id(method: str, path: str) -> str:
    """Return a stable name for generated clients."""
    words = [word.strip("{}").replace("-", "_") for word in path.removeprefix("/v1").split("/") if word]
    return "_".join((method.lower(), *words)) or method.lower()


def answers(route: Route) -> dict[int | str, dict[str, Any]]:
    """Return the responses object of one operation."""
    good: dict[str, Any] = {"description": "Good"}
    schema = {"$ref": f"#/components/schemas/{route.answer}"} if route.answer else {}
    good["content"] = {route.media_type: {"schema": schema}}
    found: dict[int | str, dict[str, Any]] = {200: good}
    statuses: tuple[int | str, ...] = (*route.problems, "default")
    for status in statuses:
        found[status] = {
            "description": "Problem",
            "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemView"}}},
        }
    return found


def _extra(route: Route) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    extra["parameters"] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
    ] + [
        {"name": p.name, "in": "query", "required": False, "description": p.text, "schema": {"type": p.kind}}
        for p in route.params
    ]
    if route.body is not None:
        schema = {"$ref": f"#/components/schemas/{route.body}"}
        extra["requestBody"] = {"required": False, "content": {JSON_TYPE: {"schema": schema}}}
    return extra


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return any JSON-able value as an answer."""
    return raw_json(msgspec.json.encode(value), status, headers)


def raw_json(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON text as an answer."""
    return Response(body, status, {"cache-control": "no-store", **(headers or {})}, JSON_TYPE)
