"""Call, Answer, Lost: one HTTP exchange as plain records, and how each verb is written down as one."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import quote

View = dict[str, Any]  # a JSON object as the server sent it


def object_of(value: object) -> View | None:
    """Return a JSON object, None for anything else."""
    return cast("View", value) if isinstance(value, dict) else None


def objects_of(value: object) -> list[View]:
    """Return the objects in a JSON array; other members, and other values, are left out."""
    members = cast("list[object]", value) if isinstance(value, list) else []
    return [view for member in members if (view := object_of(member)) is not None]


JSON = ("content-type", "application/json")
ERASE_WAIT_S = 60.0  # a large file takes its time to be written anew
NDJSON = ("content-type", "application/x-ndjson")


class Call(NamedTuple):
    """One request. `repeatable`: doing it twice does no more than doing it once."""

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    repeatable: bool = True
    source: Callable[[], Iterator[bytes]] | None = None  # the body in its stead, begun anew for each try
    sink: Callable[[bytes], object] | None = None  # where the body of a good answer goes
    wait_s: float = 0.0  # how long the server may hold the answer back because we asked it to
    kind: str = ""  # of work asked for: calls of one kind are alike to the server; none asks for no work


class Answer(NamedTuple):
    """What came back. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Lost(NamedTuple):
    """No answer. `sent` is False when the request cannot have reached the server."""

    reason: str
    sent: bool


class Pause(NamedTuple):
    """Wait this long before going on."""

    seconds: float


def job_path(job_id: str, tail: str = "") -> str:
    """Return the path of one job."""
    return f"/v1/jobs/{quote(job_id, safe='')}{tail}"


def show_call(job_id: str, wait_s: float = 0.0) -> Call:
    """Return the call for one job; with `wait_s` the server answers at the next change or after that."""
    params = (("wait", f"{wait_s:.3f}".rstrip("0").rstrip(".")),) if wait_s > 0 else ()
    return Call("GET", job_path(job_id), params, wait_s=wait_s)


def deliveries_call(job_id: str, *, replay: bool = False) -> Call:
    """Return the call that shows the deliveries of a job, or replays them: twice is as good as once."""
    return Call("POST" if replay else "GET", job_path(job_id, "/deliveries" + "/replay" * replay))


def cancel_call(asked: View) -> Call:
    """Return the call that cancels many jobs. Done twice it takes those that came meanwhile too."""
    return Call("POST", "/v1/jobs/cancel", (), (JSON,), json.dumps(asked).encode())


def submit_call(body: bytes, key: str, wait_s: float = 0.0, task: str = "") -> Call:
    """Return the call that submits one job. The key makes it repeatable."""
    headers = [JSON, ("idempotency-key", key)]
    if wait_s > 0:
        headers.append(("prefer", f"wait={max(1, round(wait_s))}"))
    return Call("POST", "/v1/jobs", headers=tuple(headers), body=body, wait_s=wait_s, kind=task)


def submit_stream_call(body: bytes, key: str) -> Call:
    """Return the call that submits one job and is answered with its events."""
    headers = (JSON, ("idempotency-key", key), ("prefer", "wait=60"), ("accept", "text/event-stream"))
    return Call("POST", "/v1/jobs", headers=headers, body=body)


def submit_many_call(lines: Sequence[bytes]) -> Call:
    """Return the call that submits many jobs; every line must carry its own idempotency key."""
    return Call("POST", "/v1/jobs", headers=(NDJSON,), body=b"\n".join(lines) + b"\n")


def queue_call(task: str, verb: str | None = None) -> Call:
    """Return the call that shows one queue, or does `pause`, `resume` or `drain` to it."""
    path = f"/v1/queues/{quote(task, safe='')}"
    return Call("GET", path) if verb is None else Call("POST", f"{path}/{verb}")


def announce_call(task: str, jobs: int, size: int | str | None) -> Call:
    """Return the call that announces a burst. It changes nothing."""
    asked = {"jobs": jobs} if size is None else {"jobs": jobs, "size": size}
    return Call(
        "POST", f"/v1/queues/{quote(task, safe='')}/announce", (), (JSON,), json.dumps(asked).encode()
    )


def headroom_call(task: str, jobs: int, wait_s: float) -> Call:
    """Return the call that asks whether a queue has room, held back until it has or `wait_s` is over."""
    params = (("jobs", str(jobs)), ("wait", f"{wait_s:.3f}"))
    return Call("GET", f"/v1/queues/{quote(task, safe='')}/headroom", params, wait_s=wait_s)


def cron_call(cron: str, verb: str) -> Call:
    """Return the call that does `pause` or `resume` to a cron entry."""
    return Call("POST", f"/v1/crons/{quote(cron, safe='')}/{verb}")


def dead_letter_call(method: str, job_id: str, tail: str = "") -> Call:
    """Return a call on one dead letter. A redrive is repeatable: asked again, the server answers with the job
    that it made the first time."""
    return Call(method, f"/v1/dead-letters/{quote(job_id, safe='')}{tail}")


def redrive_call(job_id: str, *, force: bool) -> Call:
    """Return the call that makes a new job of a dead letter, with `force` also of an input in quarantine."""
    return dead_letter_call("POST", job_id, "/redrive")._replace(params=(("force", "1"),) if force else ())


def release_call(fingerprint: str) -> Call:
    """Return the call that takes an input out of quarantine. Done twice it finds nothing the second time."""
    return Call("DELETE", f"/v1/quarantine/{quote(fingerprint, safe='')}", repeatable=False)


def erase_call(tenant: str | None, metadata: Mapping[str, str] | None) -> Call:
    """Return the call that removes everything of a tenant, or of whom the metadata names."""
    body = json.dumps({"tenant": tenant, "metadata": None if metadata is None else dict(metadata)}).encode()
    return Call("POST", "/v1/erase", headers=(JSON,), body=body, wait_s=ERASE_WAIT_S)


def page_call(path: str, filters: Mapping[str, str | None], limit: int, cursor: str | None) -> Call:
    """Return the call for one page of a list."""
    params = [(name, value) for name, value in filters.items() if value is not None]
    params.append(("limit", str(limit)))
    if cursor is not None:
        params.append(("cursor", cursor))
    return Call("GET", path, tuple(params))
