"""Replicate's predictions, under /replicate: a model is a task, a prediction is a job."""

import re
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from forebay.core.task import TaskSpec
from forebay.errors import InvalidError, MethodError, NotFoundError
from forebay.server.asking import prefer_wait_s
from forebay.server.dialects.inner import Reply
from forebay.server.dialects.shapes import Asked, Said, object_of, takes_object, text_of

OWNER: Final = "forebay"
_STATUS: Final = {
    "PENDING": "starting", "PROCESSING": "processing", "COMPLETED": "succeeded", "FAILED": "failed",
    "CANCELLED": "canceled", "EXPIRED": "failed",
}  # fmt: skip
_OPEN: Final = frozenset({"PENDING", "PROCESSING"})
_FIELDS: Final = frozenset(
    {"version", "input", "model", "webhook", "webhook_completed", "webhook_events_filter", "stream"}
)
_MODEL_PREDICTIONS: Final = re.compile(r"/v1/models/([^/]+)/([^/]+)/predictions")
_MODEL: Final = re.compile(r"/v1/models/([^/]+)/([^/]+)(?:/versions(?:/([^/]+))?)?")
_PREDICTION: Final = re.compile(r"/v1/predictions/([^/]+)(/cancel)?")
_DEPLOYMENT: Final = re.compile(r"/v1/deployments/([^/]+)/([^/]+)/predictions")


async def handle(asked: Asked) -> Said | Reply:
    """Answer one request."""
    path, method = asked.path, asked.method
    named = _MODEL_PREDICTIONS.fullmatch(path) or _DEPLOYMENT.fullmatch(path)
    one, model = _PREDICTION.fullmatch(path), _MODEL.fullmatch(path)
    match method:
        case "POST" if path == "/v1/predictions":
            body = asked.value()
            name = text_of(body.get("version") or body.get("model"), "version")
            return await _create(asked, body, asked.task(_task_of(asked, name)))
        case "POST" if named is not None:
            return await _create(asked, asked.value(), asked.task(named[2]))
        case "GET" if path == "/v1/predictions":
            return await _list(asked)
        case "GET" if one is not None and one[2] is None:
            return await _show(asked, one[1])
        case "POST" if one is not None and one[2] is not None:
            return await _cancel(asked, one[1])
        case "GET" if path == "/v1/models":
            return Said(
                {"next": None, "previous": None, "results": [_model(s) for s in asked.front.tasks.values()]}
            )
        case "GET" if model is not None and named is None:
            return _about(asked, model)
        case _:
            known = path in {"/v1/predictions", "/v1/models"} or one or named or model
            raise MethodError("allowed: GET, POST") if known else NotFoundError("no such address")


async def _create(asked: Asked, body: dict[str, Any], spec: TaskSpec) -> Said | Reply:
    unknown = sorted(set(body) - _FIELDS)
    if unknown:
        raise InvalidError(f"unknown field {unknown[0][:64]!r}", errors=((unknown[0][:64], "is unknown"),))
    if not isinstance(body.get("input"), dict):
        raise InvalidError("input must be an object", errors=(("input", "must be an object"),))
    given = object_of(body["input"])
    submission: dict[str, Any] = {"task": spec.name, "payload": payload_of(spec, given)}
    webhook = body.get("webhook") or body.get("webhook_completed")
    if webhook is not None:
        submission["callback_url"] = webhook
    after = asked.heads.get(b"cancel-after")
    if after is not None:
        submission["deadline"] = after.decode("latin-1")
    headers: list[tuple[bytes, bytes]] = []
    wait_s = prefer_wait_s(asked.heads)
    if wait_s is None and b"wait" in asked.heads.get(b"prefer", b"").lower():
        wait_s = 60.0  # its own default
    if wait_s is not None:
        headers.append((b"prefer", b"wait=%d" % wait_s))
    reply = await asked.inner.call("POST", "/v1/jobs", submission, headers=headers)
    if not reply.good:
        return reply
    view = prediction(asked, reply.json(), given)
    if view["status"] == "processing":  # a client takes any other word at this place for the end
        view["status"] = "starting"
    return Said(view, 201, reply.told())


async def _show(asked: Asked, job_id: str) -> Said | Reply:
    reply = await asked.inner.call("GET", f"/v1/jobs/{job_id}")
    return Said(prediction(asked, reply.json())) if reply.good else reply


async def _cancel(asked: Asked, job_id: str) -> Said | Reply:
    reply = await asked.inner.call("DELETE", f"/v1/jobs/{job_id}")
    if reply.status == 409:  # it ended before: theirs answers with how
        return await _show(asked, job_id)
    return Said(prediction(asked, reply.json())) if reply.good else reply


async def _list(asked: Asked) -> Said | Reply:
    cursor = re.fullmatch(r"cursor=([\w%.~-]{1,2000})", asked.query)
    if asked.query and cursor is None:
        raise InvalidError("only cursor is understood", errors=(("query", "only cursor is understood"),))
    query = f"limit=100&cursor={cursor[1]}" if cursor else "limit=100"
    reply = await asked.inner.call("GET", "/v1/jobs", query=query)
    if not reply.good:
        return reply
    page = reply.json()
    behind = page["next_cursor"]
    following = None if behind is None else f"{_base(asked)}/v1/predictions?cursor={behind}"
    return Said(
        {"next": following, "previous": None, "results": [prediction(asked, one) for one in page["items"]]}
    )


def payload_of(spec: TaskSpec, given: dict[str, Any]) -> object:
    """Return the payload that an input is: itself, or its one value for a task that takes no object."""
    return next(iter(given.values())) if len(given) == 1 and not takes_object(spec) else given


def prediction(asked: Asked, job: dict[str, Any], given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a job as a prediction."""
    base, status = _base(asked), _STATUS[job["status"]]
    spec = asked.front.tasks.get(job["task"])
    error = job["error"]
    took_s = _seconds(job["started_at"], job["finished_at"])
    return {
        "id": job["job_id"],
        "model": f"{OWNER}/{job['task']}",
        "version": "" if spec is None else version_of(spec),
        "status": status,
        "input": given,
        "output": job["result"],
        "error": None if error is None or job["status"] in _OPEN else f"{error['code']}: {error['message']}",
        "logs": "",
        "metrics": {} if took_s is None else {"predict_time": took_s},
        "created_at": job["created_at"],
        "started_at": job["started_at"],
        "completed_at": job["finished_at"],
        "data_removed": False,
        "urls": {
            "get": f"{base}/v1/predictions/{job['job_id']}",
            "cancel": f"{base}/v1/predictions/{job['job_id']}/cancel",
        },
    }


def version_of(spec: TaskSpec) -> str:
    """Return the id of a task in its version: 64 hexadecimal digits, as theirs have."""
    return sha256(f"{spec.name}\0{spec.version}".encode()).hexdigest()


def _task_of(asked: Asked, name: str) -> str:
    """Return the task that a version means: its id, the name of the task, or OWNER/NAME[:VERSION]."""
    bare = name.rpartition("/")[2]
    task, _, version = bare.partition(":")
    wanted = version or task
    return next((spec.name for spec in asked.front.tasks.values() if version_of(spec) == wanted), task)


def _about(asked: Asked, found: "re.Match[str]") -> Said:
    spec = asked.task(found[2])
    version = _version(spec)
    if found[3] is not None:
        if found[3] != version["id"]:
            raise NotFoundError("there is no such version")
        return Said(version)
    if asked.path.endswith("/versions"):
        return Said({"next": None, "previous": None, "results": [version]})
    return Said(_model(spec))


def _version(spec: TaskSpec) -> dict[str, Any]:
    schemas = {"Input": dict(spec.input_schema), "Output": dict(spec.output_schema)}
    return {
        "id": version_of(spec), "created_at": "1970-01-01T00:00:00Z", "cog_version": "0",
        "openapi_schema": {"openapi": "3.1.0", "components": {"schemas": schemas}},
    }  # fmt: skip


def _model(spec: TaskSpec) -> dict[str, Any]:
    return {
        "url": f"/v1/tasks/{spec.name}", "owner": OWNER, "name": spec.name, "description": spec.doc,
        "visibility": "private", "run_count": 0, "github_url": None, "paper_url": None, "license_url": None,
        "cover_image_url": None, "default_example": None, "latest_version": _version(spec),
    }  # fmt: skip


def _base(asked: Asked) -> str:
    """Return where this dialect is reached: what the caller wrote, with the scheme a proxy tells."""
    scheme = asked.heads.get(b"x-forwarded-proto", b"http").decode("latin-1")
    host = asked.heads.get(b"host", b"127.0.0.1").decode("latin-1")
    return f"{'https' if scheme == 'https' else 'http'}://{host}/replicate"


def _seconds(start: str | None, end: str | None) -> float | None:
    if start is None or end is None:
        return None
    begun, ended = (datetime.fromisoformat(text) for text in (start, end))
    return max(0.0, (ended - begun).total_seconds())


def problem(status: int, told: dict[str, Any]) -> object:
    """Return a refusal as theirs is: `detail` is what their clients show."""
    return {
        "title": told.get("title"),
        "detail": told.get("detail"),
        "status": status,
        "code": told.get("code"),
    }
