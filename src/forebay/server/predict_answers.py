"""What callers are told of a request that was refused, or that ended without its output."""

import math

import msgspec

from forebay.core.admission import Reason, Rejected
from forebay.core.basin import Asked
from forebay.core.degraded import level_word
from forebay.core.requests import End, Ended, Request
from forebay.errors import (
    BreakerOpenError,
    DeadlinePassedError,
    DrainingError,
    ForebayError,
    HandlerFailedError,
    InfeasibleError,
    InvalidError,
    NoWorkerError,
    QuarantinedError,
    QueueFullError,
    ShedError,
    UpstreamBusyError,
    WorkerLostError,
)
from forebay.server.answer import Headers, Send
from forebay.server.problems import problem_fields, problem_headers, rejection
from forebay.server.times import stamp

REQUEST_ID = b"forebay-request-id"
LEVEL = b"forebay-level"
_BUSY = frozenset({"upstream_busy", "upstream_away"})
RUN_TIMEOUT = "timeout"  # the code of a run that its task's timeout ended


def refusal_of(refused: Rejected, asked: Asked) -> ForebayError:
    """Return the error that tells why a request was not let in, and when to come back."""
    after_s, limit = refused.retry_after_s, refused.limit
    match refused.reason:
        case Reason.FULL:
            text = f"as many requests of {asked.task} wait as may, {limit} (requests_max)"
            return QueueFullError(text, retry_after_s=after_s, limit=limit)
        case Reason.BYTES_FULL:
            text = (
                f"the requests of {asked.task} that wait hold the {limit} bytes they may (requests_bytes_max)"
            )
            return QueueFullError(text, retry_after_s=after_s, limit=limit)
        case Reason.BREAKER_OPEN:
            return BreakerOpenError(f"what runs {asked.task} has been failing", retry_after_s=after_s)
        case Reason.UPSTREAM_BUSY:
            return UpstreamBusyError(
                f"the server behind {asked.task} takes no calls now: {refused.told}", retry_after_s=after_s
            )
        case Reason.NO_WORKER:
            return NoWorkerError(f"no worker of {asked.task} is ready", retry_after_s=after_s)
        case Reason.SHED:
            text = f"the requests of {asked.task} have waited too long, and its queue is kept short"
            return ShedError(text, retry_after_s=after_s)
        case Reason.TOO_LATE:
            return _infeasible(refused, asked)
        case _:
            return rejection(refused, asked.task)


def _infeasible(refused: Rejected, asked: Asked) -> ForebayError:
    offer, has_s = refused.offer, asked.deadline_at - asked.created_at
    if offer is None or offer.deadline_needed_at is None:
        text = f"a {asked.task} request had {has_s:g} s, and {refused.told}"
        return InfeasibleError(text, retry_after_s=refused.retry_after_s)
    needed_ms = math.ceil((offer.deadline_needed_at - asked.created_at) * 1000)
    needed_s = max(needed_ms, round(has_s * 1000) + 1) / 1000  # more than was asked for, also when rounded
    told: dict[str, object] = {
        "earliest_p50_at": stamp(offer.earliest_p50_at),
        "earliest_p90_at": stamp(offer.earliest_p90_at),
        "deadline_needed_s": needed_s,
    }
    return InfeasibleError(
        f"a {asked.task} request that comes now cannot be answered within {has_s:.3g} s: "
        f"{needed_s:g} s would do",
        retry_after_s=refused.retry_after_s,
        offer=told,
    )


def timing(request: Request, *, now: float) -> bytes:
    """Return the Server-Timing field: how long it waited and how long it ran, in milliseconds."""
    came_at = request.job.created_at
    began_at = now if request.started_at is None else request.started_at
    waited_ms, ran_ms = max(0.0, began_at - came_at) * 1000, max(0.0, now - began_at) * 1000
    return b"queue;dur=%.1f, run;dur=%.1f" % (waited_ms, ran_ms)


def headers_of(ended: Ended, *, now: float) -> Headers:
    """Return what the head of an answer tells of the request: its id, its times, how it was degraded."""
    request = ended.request
    headers: Headers = [
        (REQUEST_ID, request.job.id.encode()),
        (b"server-timing", timing(request, now=now)),
    ]
    if ended.end is End.DONE:
        headers.append((LEVEL, b"%d" % request.level))
        if (word := level_word(request.level)) is not None:
            headers.append((b"forebay-degraded", word.encode()))
    return headers


def problem_of_end(ended: Ended) -> tuple[ForebayError, bytes]:
    """Return the error of a request that was let in and got no output, and its problem document."""
    error, code = _error_of(ended)
    fields = problem_fields(error)
    if code is not None:
        fields |= {"code": code, "type": f"urn:forebay:problem:{code}"}
    return error, msgspec.json.encode(fields)


async def answer_end(ended: Ended, send: Send, extra: Headers) -> None:
    """Answer a request that was let in and got no output."""
    error, body = problem_of_end(ended)
    headers = problem_headers(error, body) + extra
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _error_of(ended: Ended) -> tuple[ForebayError, str | None]:
    """Return the error, and the handler's own code where there is one."""
    request, error = ended.request, ended.error
    has_s = request.deadline_at - request.job.created_at
    match ended.end:
        case End.LATE:
            where = "while it ran" if ended.ran else "before it could have been done"
            return DeadlinePassedError(f"the deadline of {has_s:.6g} s passed {where}"), None
        case End.BARRED if error is not None:
            told = f"the server behind {request.job.task} took no calls: {error.message}"
            return UpstreamBusyError(told, retry_after_s=ended.retry_after_s), None
        case End.BARRED:
            return BreakerOpenError(retry_after_s=ended.retry_after_s), None
        case End.SHED:
            return ShedError(retry_after_s=ended.retry_after_s), None
        case End.LOST:
            return WorkerLostError(None if error is None else error.message, retry_after_s=1.0), None
        case End.CLOSED:
            return DrainingError(retry_after_s=5.0), None
        case _:
            pass
    if error is None:
        return HandlerFailedError(), None
    if error.code == "invalid_payload":
        return InvalidError(error.message, errors=(("payload", error.message),)), error.code
    if error.code == QuarantinedError.code:
        return QuarantinedError(error.message), error.code
    if error.code == RUN_TIMEOUT:
        return DeadlinePassedError(error.message), error.code
    if error.code == BreakerOpenError.code:
        return BreakerOpenError(error.message, retry_after_s=ended.retry_after_s), None
    if error.code in _BUSY:
        return UpstreamBusyError(error.message, retry_after_s=ended.retry_after_s), error.code
    failed = HandlerFailedError(error.message, retry_after_s=ended.retry_after_s)
    return failed, error.code
