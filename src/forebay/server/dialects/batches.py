"""OpenAI's files and batches: a file is a blob, a batch is its lines as jobs; no more is kept of them."""

import re
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from forebay.errors import ForebayError, InvalidError, MalformedError, NotFoundError
from forebay.server.dialects.inner import Reply
from forebay.server.dialects.shapes import Asked, Said, last_text, object_of, takes_object, text_of

LINES_MAX: Final = 50_000
PAGE: Final = 500
CHUNK: Final = 1_000  # lines of one submission
BATCH: Final = "openai_batch"  # in the metadata of its jobs, with the custom_id of each
WINDOW_S: Final = 86_400
_ENDPOINTS: Final = frozenset({"/v1/chat/completions", "/v1/embeddings"})
_FILE, _OUT, _BATCH = "file-", "file-out-", "batch_"
_OPEN: Final = frozenset({"PENDING", "PROCESSING"})
_ID: Final = re.compile(r"[0-9a-f]{1,128}")


class RefusedError(Exception):
    """An inner call was refused; `reply` is told to the caller."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


async def handle(asked: Asked) -> Said | Reply:
    """Answer one request about files or batches."""
    path, method = asked.path.removeprefix("/v1"), asked.method
    parts = path.strip("/").split("/")
    try:
        match method, parts:
            case "POST", ["files"]:
                return Said(await _upload(asked))
            case "GET", ["files", one]:
                return Said(await _file(asked, one))
            case "GET", ["files", one, "content"]:
                return Said(body=await _content(asked, one), kind=b"application/octet-stream")
            case "POST", ["batches"]:
                return Said(await _create(asked))
            case "GET", ["batches", one]:
                return Said(await _batch(asked, one))
            case "POST", ["batches", one, "cancel"]:
                await _call(asked, "POST", "/v1/jobs/cancel", {"metadata": {BATCH: one}, "limit": 10_000})
                return Said(await _batch(asked, one))
            case _:
                raise NotFoundError("no such address")
    except RefusedError as refused:
        return refused.reply


async def _call(asked: Asked, method: str, path: str, value: object = None, **more: Any) -> Reply:
    reply = await asked.inner.call(method, path, value, **more)
    if not reply.good:
        raise RefusedError(reply)
    return reply


async def _upload(asked: Asked) -> dict[str, Any]:
    name, data, purpose = parts_of(asked.heads.get(b"content-type", b"").decode("latin-1"), asked.body)
    if purpose != "batch":
        raise InvalidError("purpose must be batch", errors=(("purpose", "must be batch"),))
    reply = await _call(asked, "PUT", "/v1/blobs", body=data, kind=b"application/octet-stream")
    return _shown(asked, _FILE + str(reply.json()["id"]), len(data), name)


def parts_of(kind: str, body: bytes) -> tuple[str, bytes, str]:
    """Return name, bytes and purpose of an upload by multipart/form-data. Raises MalformedError."""
    found = re.search(r'boundary="?([^";,]{1,70})"?', kind)
    if not kind.lower().startswith("multipart/form-data") or found is None:
        raise MalformedError("an upload is multipart/form-data with a boundary")
    name, data, purpose = "", None, ""
    for part in body.split(b"--" + found[1].encode("latin-1"))[1:]:
        head, sign, content = part.partition(b"\r\n\r\n")
        text = head.decode("latin-1")
        field = re.search(r'\bname="([^"]*)"', text)
        if not sign or field is None:
            continue
        content = content.removesuffix(b"\r\n")
        if field[1] == "file":
            named = re.search(r'filename="([^"]*)"', text)
            name, data = named[1] if named else "file", content
        elif field[1] == "purpose":
            purpose = content.decode("latin-1").strip()
    if data is None:
        raise InvalidError("file is missing", errors=(("file", "is missing"),))
    return name, data, purpose


def _shown(asked: Asked, file_id: str, size: int, name: str) -> dict[str, Any]:
    return {
        "id": file_id, "object": "file", "bytes": size, "created_at": int(asked.front.clock.now()),
        "filename": name, "status": "processed",
        "purpose": "batch_output" if file_id.startswith(_OUT) else "batch",
    }  # fmt: skip


async def _file(asked: Asked, file_id: str) -> dict[str, Any]:
    return _shown(asked, file_id, len(await _content(asked, file_id)), f"{file_id}.jsonl")


def _bare(text: str, prefix: str) -> str:
    bare = text.removeprefix(prefix)
    if not text.startswith(prefix) or _ID.fullmatch(bare) is None:
        raise NotFoundError("there is no such file or batch")
    return bare


async def _content(asked: Asked, file_id: str) -> bytes:
    if file_id.startswith(_OUT):
        batch_id = _BATCH + _bare(file_id, _OUT)
        rows = [await _line(asked, one) async for one in _jobs(asked, batch_id)]
        return b"".join(msgspec.json.encode(row) + b"\n" for row in reversed(rows))
    return (await _call(asked, "GET", f"/v1/blobs/{_bare(file_id, _FILE)}")).body


async def _create(asked: Asked) -> dict[str, Any]:
    body = asked.value()
    endpoint = text_of(body.get("endpoint"), "endpoint")
    if endpoint not in _ENDPOINTS:
        raise InvalidError(f"endpoint must be one of {', '.join(sorted(_ENDPOINTS))}")
    file_id = text_of(body.get("input_file_id"), "input_file_id")
    lines = [line for line in (await _content(asked, file_id)).splitlines() if line.strip()]
    if not 1 <= len(lines) <= LINES_MAX:
        raise InvalidError(f"a batch has 1 to {LINES_MAX:,} lines, not {len(lines):,}")
    jobs = [_job(asked, endpoint, number, line) for number, line in enumerate(lines, 1)]
    record = {
        "lines": len(jobs), "input": file_id, "endpoint": endpoint, "created": int(asked.front.clock.now()),
        "metadata": object_of(body.get("metadata")) or None,
    }  # fmt: skip
    raw = msgspec.json.encode(record)
    blob = await _call(asked, "PUT", "/v1/blobs", body=raw, kind=b"application/json")
    batch_id = _BATCH + str(blob.json()["id"])
    for number, job in enumerate(jobs, 1):
        job["metadata"][BATCH] = batch_id
        job["idempotency_key"] = f"{batch_id[-40:]}-{number}"
    await _submit(asked, batch_id, jobs)
    return await _batch(asked, batch_id)


def _job(asked: Asked, endpoint: str, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = object_of(msgspec.json.decode(line))
        body = object_of(row.get("body"))
        if row.get("url") != endpoint or not body:
            raise InvalidError(f"url must be {endpoint}, and body an object")
        spec = asked.task(text_of(body.get("model"), "model"))
        payload: object = body
        if not takes_object(spec):
            payload = last_text(body.get("messages")) if "messages" in body else body.get("input")
        custom = text_of(row.get("custom_id"), "custom_id")
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise MalformedError(f"line {number} is not JSON") from None
    except ForebayError as error:
        raise InvalidError(f"line {number}: {error}", errors=((f"line {number}", str(error)),)) from None
    return {"task": spec.name, "payload": payload, "priority": "low", "metadata": {"custom_id": custom}}


async def _submit(asked: Asked, batch_id: str, jobs: list[dict[str, Any]]) -> None:
    """Submit all, or none: what was taken is cancelled when a line is refused."""
    for at in range(0, len(jobs), CHUNK):
        text = b"".join(msgspec.json.encode(job) + b"\n" for job in jobs[at : at + CHUNK])
        reply = await _call(asked, "POST", "/v1/jobs", body=text, kind=b"application/x-ndjson")
        for line in reply.body.splitlines():
            verdict = msgspec.json.decode(line)
            if verdict["status"] >= 400:
                wanted = {"metadata": {BATCH: batch_id}, "limit": 10_000}
                await asked.inner.call("POST", "/v1/jobs/cancel", wanted)
                headers = [(b"retry-after", b"%d" % max(1, round(verdict.get("retry_after_s") or 1)))]
                raise RefusedError(
                    Reply(verdict["status"], headers if verdict["status"] in {429, 503} else [], line)
                )


async def _jobs(asked: Asked, batch_id: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the jobs of a batch, newest first."""
    cursor: str | None = ""
    while cursor is not None:
        query = f"limit={PAGE}&metadata.{BATCH}={batch_id}" + (f"&cursor={cursor}" if cursor else "")
        page = (await _call(asked, "GET", "/v1/jobs", query=query)).json()
        for job in page["items"]:
            yield job
        cursor = page["next_cursor"]


async def _line(asked: Asked, job: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": f"batch_req_{job['job_id']}", "custom_id": job["metadata"].get("custom_id"), "response": None,
        "error": None,
    }  # fmt: skip
    if job["status"] == "COMPLETED":
        shown = (await _call(asked, "GET", f"/v1/jobs/{job['job_id']}")).json()
        row["response"] = {"status_code": 200, "request_id": job["job_id"], "body": shown["result"]}
    elif job["status"] not in _OPEN:
        error = job["error"] or {"code": job["status"].lower(), "message": f"it is {job['status'].lower()}"}
        row["error"] = {"code": error["code"], "message": error["message"]}
    return row


async def _batch(asked: Asked, batch_id: str) -> dict[str, Any]:
    record = (await _call(asked, "GET", f"/v1/blobs/{_bare(batch_id, _BATCH)}")).json()
    counts = {"total": record["lines"], "completed": 0, "failed": 0}
    left = cancelled = 0
    async for job in _jobs(asked, batch_id):
        status = job["status"]
        left += status in _OPEN
        cancelled += status == "CANCELLED"
        if status not in _OPEN:
            counts["completed" if status == "COMPLETED" else "failed"] += 1
    status = (
        ("cancelling" if cancelled else "in_progress") if left else "cancelled" if cancelled else "completed"
    )
    out = None if left else _OUT + batch_id.removeprefix(_BATCH)
    return {
        "id": batch_id, "object": "batch", "endpoint": record["endpoint"], "errors": None,
        "input_file_id": record["input"], "completion_window": "24h", "status": status, "output_file_id": out,
        "error_file_id": None, "created_at": record["created"], "expires_at": record["created"] + WINDOW_S,
        "request_counts": counts, "metadata": record["metadata"],
    }  # fmt: skip
