"""The Open Inference Protocol, version 2, under /v2: a model is a task, tensors are lists, binary or not."""

import asyncio
import re
from typing import Any, Final

import msgspec

from forebay.core.task import TaskSpec
from forebay.errors import InvalidError, MalformedError, MethodError, NotFoundError
from forebay.server.dialects.inner import Reply
from forebay.server.dialects.shapes import Asked, Said, list_of, object_of, schema_of, takes_object
from forebay.server.dialects.tensors import Tensor, of_value, read_binary, read_nested, write_binary

HEAD_LENGTH: Final = b"inference-header-content-length"
ITEMS_MAX: Final = 4_096  # of one batch
_MODEL: Final = re.compile(r"/models/([^/]+)(?:/versions/([^/]+))?(/ready|/infer|/stats|/config)?")
_URGENCY: Final = {1: "high", 2: "normal"}  # 0 is the model's own; from 3 on low


async def handle(asked: Asked) -> Said | Reply:
    """Answer one request."""
    path, method = asked.path.rstrip("/"), asked.method
    found = _MODEL.fullmatch(path)
    match method:
        case "GET" if path == "":
            version = asked.front.version
            return Said({"name": "forebay", "version": version, "extensions": ["binary_tensor_data"]})
        case "GET" if path == "/health/live":
            return await _health(asked, "/healthz")
        case "GET" if path == "/health/ready":
            return await _health(asked, "/readyz")
        case "POST" if path == "/repository/index":
            return Said([{"name": name, "version": "1", "state": "READY"} for name in asked.front.tasks])
        case "GET" if found is not None and found[3] is None:
            return Said(_about(asked.task(found[1])))
        case "GET" if found is not None and found[3] == "/ready":
            asked.task(found[1])
            return await _health(asked, "/readyz")
        case "GET" if found is not None and found[3] == "/config":
            spec = asked.task(found[1])
            return Said(
                {"name": spec.name, "platform": "forebay", "max_batch_size": 0, "input": [], "output": []}
            )
        case "POST" if found is not None and found[3] == "/infer":
            return await _infer(asked, asked.task(found[1]))
        case _:
            known = found is not None or path in {"", "/health/live", "/health/ready", "/repository/index"}
            raise MethodError("allowed: GET, POST") if known else NotFoundError("no such address")


async def _health(asked: Asked, path: str) -> Said | Reply:
    reply = await asked.inner.call("GET", path)
    return Said({"live": True} if path == "/healthz" else {"ready": True}) if reply.good else reply


def _about(spec: TaskSpec) -> dict[str, Any]:
    """Return what is known of the tensors: a task says no shapes, so they are open."""
    fields = object_of(schema_of(spec).get("properties"))
    names = list(fields) if takes_object(spec) and fields else ["input"]
    return {
        "name": spec.name, "versions": [spec.version], "platform": "forebay",
        "inputs": [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in names],
        "outputs": [{"name": "output", "datatype": "BYTES", "shape": [-1]}],
    }  # fmt: skip


async def _infer(asked: Asked, spec: TaskSpec) -> Said | Reply:
    head, tail = _parted(asked)
    inputs, parameters = list_of(head.get("inputs")), object_of(head.get("parameters"))
    if not inputs:
        raise InvalidError(
            "inputs must be a list that is not empty", errors=(("inputs", "must not be empty"),)
        )
    tensors = _tensors(inputs, tail)
    payloads, batched = payloads_of(spec, tensors)
    headers = _headers(asked, parameters)
    path = f"/v1/predict/{spec.name}"
    replies = await asyncio.gather(
        *(asked.inner.call("POST", path, payload, headers=headers) for payload in payloads)
    )
    refused = next((one for one in replies if not one.good), None)
    if refused is not None:
        return refused
    values = [one.json() for one in replies]
    outputs = outputs_of(values if batched else values[0], batched=batched)
    return _answered(head, spec, outputs, replies[0])


def _parted(asked: Asked) -> tuple[dict[str, Any], memoryview]:
    """Return the JSON of a request, and the bytes of its tensors behind it."""
    told = asked.heads.get(HEAD_LENGTH)
    if told is None:
        return asked.value(), memoryview(b"")
    if not told.isdigit() or int(told[:12]) > len(asked.body):
        raise MalformedError("Inference-Header-Content-Length is not a length within the body")
    at = int(told)
    return asked._replace(body=asked.body[:at]).value(), memoryview(asked.body)[at:]


def _tensors(told: list[Any], tail: memoryview) -> list[Tensor]:
    found: list[Tensor] = []
    for number, one in enumerate(told):
        where = f"inputs[{number}]"
        try:
            row = object_of(one)
            name, kind = str(row["name"]), str(row["datatype"])
            shape = [int(size) for size in row["shape"]]
            size = object_of(row.get("parameters")).get("binary_data_size")
            if size is None:
                found.append(read_nested(name, kind, shape, row["data"]))
                continue
            found.append(read_binary(name, kind, shape, bytes(tail[: int(size)])))
            tail = tail[int(size) :]
        except (KeyError, TypeError):
            rule = "needs name, datatype, shape and data"
            raise InvalidError(f"{where} {rule}", errors=((where, rule),)) from None
        except ValueError as error:
            raise InvalidError(f"{where}: {error}", errors=((where, str(error)),)) from None
    return found


def payloads_of(spec: TaskSpec, tensors: list[Tensor]) -> tuple[list[Any], bool]:
    """Return the payloads, and whether there is one for each item of a batch.

    A task that takes an object gets one with the tensors by name, each a list in its shape, or its one value.
    Another task gets one tensor: each item along the first axis is a payload of its own.
    """
    if takes_object(spec) and spec.input_schema:
        return [{one.name: one.value() for one in tensors}], False
    if len(tensors) > 1:
        return [{one.name: one.value() for one in tensors}], False
    (one,) = tensors
    if spec.input_schema.get("type") == "array" and len(one.shape) <= 1:
        return [one.nested()], False
    items = list_of(one.nested())
    if not one.shape or not items:
        return [one.nested()], False
    if len(items) > ITEMS_MAX:
        rule = f"may hold up to {ITEMS_MAX:,} items"
        raise InvalidError(f"inputs[0] {rule}", errors=(("inputs[0]", rule),))
    return items, True


def outputs_of(value: Any, *, batched: bool) -> list[Tensor]:
    """Return an output as tensors: an object has one for each of its fields."""
    fields = {} if batched else object_of(value)
    if fields:
        return [of_value(name, one) for name, one in fields.items()]
    return [of_value("output", value)]


def _headers(asked: Asked, parameters: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    """Return what the parameters say: `timeout` in microseconds, `priority` with 1 as the most urgent."""
    found: list[tuple[bytes, bytes]] = []
    timeout, priority = parameters.get("timeout"), parameters.get("priority")
    if isinstance(timeout, int) and timeout > 0:
        found.append((b"x-request-timeout", b"%.6f" % (timeout / 1e6)))
    if isinstance(priority, int) and priority > 0:
        found.append((b"forebay-priority", _URGENCY.get(priority, "low").encode()))
    have = {name for name, _ in found} & set(asked.heads)
    return [pair for pair in found if pair[0] not in have]


def _answered(head: dict[str, Any], spec: TaskSpec, outputs: list[Tensor], reply: Reply) -> Said:
    wants = [object_of(one) for one in list_of(head.get("outputs"))]
    asked_for = {str(one.get("name")): object_of(one.get("parameters")) for one in wants}
    all_binary = bool(object_of(head.get("parameters")).get("binary_data_output"))
    told: list[dict[str, Any]] = []
    tails: list[bytes] = []
    for one in outputs:
        if asked_for and one.name not in asked_for and len(outputs) > 1:
            continue
        wanted = asked_for.get(one.name) or (
            next(iter(asked_for.values())) if len(outputs) == 1 and asked_for else {}
        )
        name = (
            one.name if one.name in asked_for or len(outputs) > 1 or not asked_for else next(iter(asked_for))
        )
        row: dict[str, Any] = {"name": name, "datatype": one.kind, "shape": one.shape}
        if wanted.get("binary_data", all_binary):
            tails.append(write_binary(one))
            row["parameters"] = {"binary_data_size": len(tails[-1])}
        else:
            row["data"] = one.flat
        told.append(row)

    value = {"model_name": spec.name, "model_version": spec.version, "outputs": told}
    if head.get("id"):
        value["id"] = head["id"]
    if not tails:
        return Said(value, 200, reply.told())
    text = msgspec.json.encode(value)
    length = (HEAD_LENGTH, b"%d" % len(text))
    return Said(None, 200, [length, *reply.told()], text + b"".join(tails), b"application/octet-stream")


def problem(status: int, told: dict[str, Any]) -> object:
    """Return a refusal as the protocol has it."""
    return {"error": told.get("detail") or told.get("title"), "code": told.get("code"), "status": status}
