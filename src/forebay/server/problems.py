"""Errors -> RFC 9457 problem+json, Retry-After, and the refusals that only HTTP knows."""

import math

import msgspec

from forebay.core.admission import Reason, Rejected
from forebay.errors import (
    DrainingError,
    ForebayError,
    InfeasibleError,
    OverBudgetError,
    QueueFullError,
    QuotaExceededError,
    RateLimitedError,
    TooLargeError,
)
from forebay.server.limits import ERRORS_MAX
from forebay.server.times import stamp

DETAIL_LENGTH_MAX = 500  # characters


class MisdirectedError(ForebayError):
    """This server does not answer for that host name."""

    code, status, title = "misdirected", 421, "Misdirected request"


class CrossOriginError(ForebayError):
    """A page of another origin may not change anything here."""

    code, status, title = "cross_origin", 403, "Cross-origin request"


class BodyTimeoutError(ForebayError):
    """The body did not arrive in time."""

    code, status, title = "body_timeout", 408, "Request timeout"


class HeadersTooLargeError(ForebayError):
    """The headers are larger than the limit."""

    code, status, title = "headers_too_large", 431, "Headers too large"


class UriTooLongError(ForebayError):
    """The address is longer than the limit."""

    code, status, title = "uri_too_long", 414, "Address too long"


class ExpectationError(ForebayError):
    """The expectation is not supported."""

    code, status, title = "expectation_failed", 417, "Expectation failed"


class InternalError(ForebayError):
    """Something went wrong here; it was logged."""

    code, status, title = "internal", 500, "Internal error"


class TooManyReadersError(ForebayError):
    """As many event streams are open as may be."""

    code, status, title = "too_many_readers", 503, "Too many event streams"


class ClientGoneError(Exception):
    """The client hung up; there is nobody to answer."""


_PROBLEM_TYPE = (b"content-type", b"application/problem+json")


def rejection(rejected: Rejected, task: str) -> ForebayError:
    """Return the error that tells a caller about a decision of the gate."""
    limit, after_s = rejected.limit, rejected.retry_after_s
    match rejected.reason:
        case Reason.FULL:
            return QueueFullError(
                f"the queue of {task} holds the {limit} jobs it may hold", retry_after_s=after_s, limit=limit
            )
        case Reason.BYTES_FULL:
            return QueueFullError(
                f"the queue of {task} holds the {limit} bytes it may hold", retry_after_s=after_s, limit=limit
            )
        case Reason.RATE_LIMITED:
            return RateLimitedError(
                f"{task} takes {limit} submissions a second", retry_after_s=after_s, limit=limit
            )
        case Reason.TOO_LARGE:
            return TooLargeError(f"the queue of {task} can never hold this many bytes", limit=limit)
        case Reason.TENANT_RATE:
            return RateLimitedError(
                f"this tenant may submit {limit:g} jobs a second", retry_after_s=after_s, limit=limit
            )
        case Reason.TENANT_BYTES_RATE:
            return RateLimitedError(
                f"this tenant may submit {limit:.0f} bytes a second", retry_after_s=after_s, limit=limit
            )
        case Reason.QUOTA_JOBS:
            return QuotaExceededError(
                f"this tenant may hold {limit} open jobs", retry_after_s=after_s, limit=limit
            )
        case Reason.QUOTA_BYTES:
            return QuotaExceededError(
                f"this tenant may hold {limit} bytes in open jobs", retry_after_s=after_s, limit=limit
            )
        case Reason.OVER_BUDGET:
            return OverBudgetError(
                f"all who share this budget may submit {limit:g} jobs a second together",
                retry_after_s=after_s,
                limit=limit,
            )
        case Reason.TOO_LATE:
            return _infeasible(rejected, task)
        case _:
            return DrainingError(retry_after_s=after_s)  # Pressure.refusal says more


def _infeasible(rejected: Rejected, task: str) -> ForebayError:
    offer = rejected.offer
    assert offer is not None
    told: dict[str, object] = {
        "earliest_p50_at": stamp(offer.earliest_p50_at),
        "earliest_p90_at": stamp(offer.earliest_p90_at),
    }
    which, hint = "deadline", ""
    if offer.deadline_needed_at is not None:
        told["deadline_needed_at"] = stamp(offer.deadline_needed_at)
        hint = f"a deadline of {told['deadline_needed_at']} would do"
    if offer.ttl_needed_s is not None:
        needed_s = math.ceil(offer.ttl_needed_s * 1000) / 1000
        told["ttl_needed_s"] = needed_s
        which, hint = "ttl", f"a ttl of {needed_s:g} s would do"
    return InfeasibleError(
        f"the {which} of this {task} job would pass before it is its turn: {hint}",
        retry_after_s=rejected.retry_after_s,
        offer=told,
    )


def problem_fields(error: ForebayError) -> dict[str, object]:
    """Return the members of the problem document, only those that say something."""
    fields: dict[str, object] = {
        "type": f"urn:forebay:problem:{error.code}",
        "title": error.title,
        "status": error.status,
        "detail": _clipped(str(error)),
        "code": error.code,
    }
    if error.retry_after_s is not None:
        fields["retry_after_s"] = math.ceil(error.retry_after_s * 1000) / 1000  # never a moment too early
    if error.service_s is not None:
        fields["service_s"] = round(error.service_s, 6)
    fields.update(error.members)
    if isinstance(error, InfeasibleError):
        fields.update(error.offer)
    if error.limit is not None:
        fields["limit"] = error.limit
    if error.errors:
        fields["errors"] = [
            {"path": _clipped(path), "rule": _clipped(rule)} for path, rule in error.errors[:ERRORS_MAX]
        ]
    return fields


def problem_body(error: ForebayError) -> bytes:
    """Return the problem document as JSON."""
    return msgspec.json.encode(problem_fields(error))


def problem_headers(error: ForebayError, body: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers of a problem answer; Retry-After is whole seconds, at least 1."""
    headers = [_PROBLEM_TYPE, (b"content-length", b"%d" % len(body)), (b"cache-control", b"no-store")]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s))))
        headers.append((b"retry-after-ms", b"%d" % max(1, math.ceil(error.retry_after_s * 1000))))
    if error.code == "state_conflict":
        headers.append((b"x-should-retry", b"false"))
    return headers


def _clipped(text: str) -> str:
    return text if len(text) <= DETAIL_LENGTH_MAX else text[: DETAIL_LENGTH_MAX - 1] + "…"
