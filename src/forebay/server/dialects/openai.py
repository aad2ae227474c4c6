"""OpenAI's completions and embeddings, under /openai: a model is a task, answered as a request."""

import asyncio
from typing import Any, Final

import msgspec

from forebay.core.task import TaskSpec
from forebay.errors import InvalidError, MethodError, NotFoundError
from forebay.server.dialects import batches
from forebay.server.dialects.inner import Reply
from forebay.server.dialects.shapes import (
    Asked,
    Said,
    last_text,
    list_of,
    many_of,
    object_of,
    takes_object,
    text_of,
)

INPUTS_MAX: Final = 2_048  # of one call for embeddings, as theirs
_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}
_TIERS: Final = {"flex": "low", "priority": "high"}


async def handle(asked: Asked) -> Said | Reply:
    """Answer one request."""
    match asked.method, asked.path:
        case "POST", "/v1/chat/completions":
            return await _complete(asked)
        case "POST", "/v1/embeddings":
            return await _embed(asked)
        case _, path if path.startswith(("/v1/files", "/v1/batches")):
            return await batches.handle(asked)
        case "GET", "/v1/models":
            return Said({"object": "list", "data": [_model(name) for name in asked.front.tasks]})
        case "GET", path if path.startswith("/v1/models/"):
            return Said(_model(asked.task(path.removeprefix("/v1/models/")).name))
        case _, "/v1/chat/completions" | "/v1/embeddings":
            raise MethodError("allowed: POST")
        case _, path if path.startswith("/v1/models"):
            raise MethodError("allowed: GET")
        case _:
            raise NotFoundError("no such address")


async def _complete(asked: Asked) -> Said | Reply:
    body = asked.value()
    spec = asked.task(text_of(body.get("model"), "model"))
    if body.get("stream"):
        raise InvalidError("stream is not offered here", errors=(("stream", "must be false"),))
    messages = list_of(body.get("messages"))
    if not messages:
        raise InvalidError(
            "messages must be a list that is not empty", errors=(("messages", "must not be empty"),)
        )
    payload = body if takes_object(spec) else last_text(messages)
    reply = await _predict(asked, spec, payload, body)
    if not reply.good:
        return reply
    output = reply.json()
    if "choices" not in object_of(output):
        output = _completion(asked, spec, output)
    return Said(output, 200, reply.told())


async def _embed(asked: Asked) -> Said | Reply:
    body = asked.value()
    spec = asked.task(text_of(body.get("model"), "model"))
    if body.get("encoding_format") not in (None, "float"):
        told = "encoding_format must be float"
        raise InvalidError(told, errors=(("encoding_format", "must be float"),))
    if takes_object(spec):
        reply = await _predict(asked, spec, body, body)
        output = reply.json() if reply.good else None
        if reply.good and "data" in object_of(output):
            return Said(output, 200, reply.told())
        return reply if not reply.good else Said(_embeddings(spec, output), 200, reply.told())
    given = body.get("input")
    texts = many_of(given)
    if not texts or len(texts) > INPUTS_MAX:
        rule = f"must be a text, or a list of up to {INPUTS_MAX:,}"
        raise InvalidError(f"input {rule}", errors=(("input", rule),))
    replies = await asyncio.gather(*(_predict(asked, spec, one, body) for one in texts))
    refused = next((one for one in replies if not one.good), None)
    if refused is not None:
        return refused
    return Said(_embeddings(spec, [one.json() for one in replies]), 200, replies[0].told())


async def _predict(asked: Asked, spec: TaskSpec, payload: object, body: dict[str, Any]) -> Reply:
    headers: list[tuple[bytes, bytes]] = []
    tier = _TIERS.get(str(body.get("service_tier")))
    if tier is not None and b"forebay-priority" not in asked.heads:
        headers.append((b"forebay-priority", tier.encode()))
    return await asked.inner.call("POST", f"/v1/predict/{spec.name}", payload, headers=headers)


def _completion(asked: Asked, spec: TaskSpec, output: object) -> dict[str, Any]:
    text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
    now = asked.front.clock.now()
    return {
        "id": f"chatcmpl-{asked.front.broker.new_id(now)}",
        "object": "chat.completion",
        "created": int(now),
        "model": spec.name,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": _NO_TOKENS,
    }


_NO_TOKENS: Final = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def _embeddings(spec: TaskSpec, output: object) -> dict[str, Any]:
    rows = many_of(output)
    rows = [rows] if rows and isinstance(rows[0], int | float) else rows
    data = [{"object": "embedding", "index": number, "embedding": row} for number, row in enumerate(rows)]
    return {
        "object": "list",
        "data": data,
        "model": spec.name,
        "usage": {"prompt_tokens": 0, "total_tokens": 0},
    }


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "forebay"}


def problem(status: int, told: dict[str, Any]) -> object:
    """Return a refusal as theirs is. `param` names the field."""
    fields = list_of(told.get("errors"))
    error: dict[str, Any] = {
        "message": told.get("detail"),
        "type": _TYPES.get(status, "server_error"),
        "param": object_of(fields[0]).get("path") or None if fields else None,
        "code": told.get("code"),
    }
    return {"error": error}
