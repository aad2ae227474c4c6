"""fault_of, JobFailedError, RemoteError: an answer that says no, as an error of the one tree."""

import json
import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from forebay import errors
from forebay.client.wire import Answer, Lost, View, object_of, objects_of
from forebay.errors import ForebayError, UnreachableError

OFFERED = (
    "earliest_p50_at", "earliest_p90_at", "deadline_needed_at", "deadline_needed_s", "ttl_needed_s",
)  # fmt: skip
NO_ADDRESS = "no such address"  # what a server says of a path that is no route
DELIBERATE = ("Failed", "Permanent", "Retry")  # a handler's own words for what went wrong
TEXT_MAX = 2000  # characters of a server's sentence that an error keeps


class RemoteError(ForebayError):
    """The server refused for a reason this client has no class for; `code` and `status` are the server's."""

    code, status, title = "remote", 500, "Refused"


def said_of(error: View) -> str:
    """Return what a job's error says, with the kind of exception where a handler raised one of its own:
    "KeyError: 'page'", since many an exception says little without it. Empty when it says nothing."""
    message, kind = str(error.get("message") or ""), error.get("type")
    plain = error.get("code") != "handler_failed" or kind in (None, "", message, *DELIBERATE)
    return message if plain else f"{kind}: {message}"


class JobFailedError(ForebayError):
    """The job ended without a result; `code` and `message` say why, `view` is the job."""

    code, status, title = "job_failed", 500, "Job failed"

    def __init__(self, view: View) -> None:
        state = str(view.get("status", "FAILED"))
        error = object_of(view.get("error")) or {}
        self.view = view
        self.job_id = str(view.get("job_id", ""))
        self.message = str(error.get("message") or f"the job is {state}")[:TEXT_MAX]
        super().__init__(f"{self.job_id}: {said_of(error)[:TEXT_MAX] or self.message}")
        _name(self, code=str(error.get("code") or state.lower()))


class StreamRestartedError(ForebayError):
    """The job began anew and yields other parts than those that were given out already."""

    code, status, title = "stream_restarted", 500, "Stream restarted"


def _walk(root: type[ForebayError]) -> dict[str, type[ForebayError]]:
    found: dict[str, type[ForebayError]] = {}
    for child in root.__subclasses__():
        found.update(_walk(child))
        if child.__module__ == errors.__name__:
            found[child.code] = child
    return found


KINDS = _walk(ForebayError)
_KNOWN = frozenset({"type", "title", "status", "detail", "code", "retry_after_s", "limit", "errors", "line"})


def fault_of(reply: Answer | Lost, url: str = "") -> ForebayError:
    """Return the error that an answer with a status of 400 or more, or no answer, stands for."""
    if isinstance(reply, Lost):
        where = f" {url}" if url else ""
        return UnreachableError(f"cannot reach{where or ' the server'}: {reply.reason}")
    problem, prefix = problem_of(reply), urlsplit(url).path
    if prefix and problem.get("detail") == NO_ADDRESS:
        problem["detail"] = f"{NO_ADDRESS} at {url}: the address of the server itself has no {prefix}"
    fault = fault_from(problem, reply.status)
    fault.retry_after_s = retry_after_s(reply)
    return fault


def fault_from(problem: Mapping[str, Any], status: int) -> ForebayError:
    """Return the error for one problem object: the class of its code, or RemoteError that keeps the code."""
    code = str(problem.get("code") or f"http_{status}")[:100]
    text = str(problem.get("detail") or problem.get("title") or f"the server answered {status}")[:TEXT_MAX]
    pairs = tuple(
        (str(row.get("path", ""))[:TEXT_MAX], str(row.get("rule", ""))[:TEXT_MAX])
        for row in objects_of(problem.get("errors"))[:100]
    )
    limit = problem.get("limit")
    fault = KINDS.get(code, RemoteError)(
        text,
        retry_after_s=_seconds(problem.get("retry_after_s")),
        limit=limit if isinstance(limit, int | float) and not isinstance(limit, bool) else None,
        errors=pairs,
        members={name: value for name, value in problem.items() if name not in _KNOWN},
    )
    fault.service_s = _seconds(problem.get("service_s"))
    if isinstance(fault, errors.InfeasibleError):
        fault.offer = {name: problem[name] for name in OFFERED if name in problem}
    if isinstance(fault, RemoteError):
        _name(fault, code=code, status=status)
    return fault


def problem_of(answer: Answer) -> dict[str, Any]:
    """Return the problem object of a refusal, empty when the body is something else."""
    try:
        return object_of(json.loads(answer.body)) or {}
    except (ValueError, RecursionError):
        return {}


def retry_after_s(answer: Answer) -> float | None:
    """Return the seconds the server asks us to stay away: the finest figure it gave, None when none."""
    exact = _seconds(problem_of(answer).get("retry_after_s"))
    if exact is not None:
        return exact
    millis = _seconds(answer.headers.get("retry-after-ms"))
    if millis is not None:
        return millis / 1000
    text = answer.headers.get("retry-after")
    plain = _seconds(text)
    if plain is not None or text is None:
        return plain
    try:  # a date; the server's own date is the clock it was written by
        then, sent = parsedate_to_datetime(text), parsedate_to_datetime(answer.headers.get("date", ""))
        return max(0.0, (then - sent).total_seconds())
    except (ValueError, TypeError):
        return None


def _seconds(value: object) -> float | None:
    try:
        number = (
            float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
        )
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _name(fault: ForebayError, **names: object) -> None:
    # The tree keeps code and status on the class; these two carry what the server said on the instance.
    fault.__dict__.update(names)
