"""Every deliberate error, in one tree: a stable `code`, an HTTP status hint, one sentence each; text is for
people, `code` is for programs. Anything else that escapes is a bug."""

from collections.abc import Mapping
from typing import ClassVar


class ForebayError(Exception):
    """Something Forebay refused or could not do. The class docstring is the default message."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Error"

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after_s: float | None = None,
        limit: int | float | None = None,
        errors: tuple[tuple[str, str], ...] = (),
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])
        self.retry_after_s = retry_after_s
        self.limit = limit
        self.errors = errors  # (path, rule) pairs
        self.service_s: float | None = None  # what one job of the task takes, where a queue refused
        self.members = dict(members or {})  # what else the problem says, by name


class MalformedError(ForebayError):
    """The request is not what its form says it is."""

    code, status, title = "malformed", 400, "Malformed request"


class InvalidError(ForebayError):
    """A field breaks a rule."""

    code, status, title = "invalid", 422, "Invalid field"


class UnknownTaskError(ForebayError):
    """No such task is served here."""

    code, status, title = "unknown_task", 404, "Unknown task"


class NotFoundError(ForebayError):
    """There is no such thing."""

    code, status, title = "not_found", 404, "Not found"


class NotFinishedError(ForebayError):
    """The job has not ended yet."""

    code, status, title = "not_finished", 409, "Not finished"


class NoResultError(ForebayError):
    """The job ended without a result."""

    code, status, title = "no_result", 409, "No result"


class StateConflictError(ForebayError):
    """The job is in a state that does not allow this."""

    code, status, title = "state_conflict", 409, "State conflict"


class IdempotencyPendingError(ForebayError):
    """The first submission with this idempotency key is not committed yet."""

    code, status, title = "idempotency_pending", 409, "Submission in progress"


class IdempotencyConflictError(ForebayError):
    """The idempotency key was used with another body."""

    code, status, title = "idempotency_conflict", 422, "Idempotency key reused"


class UnauthorizedError(ForebayError):
    """An API key is required."""

    code, status, title = "unauthorized", 401, "Unauthorized"


class ForbiddenError(ForebayError):
    """The API key may not do this."""

    code, status, title = "forbidden", 403, "Forbidden"


class LinkError(ForebayError):
    """A signed link is not valid, or has expired."""

    code, status, title = "bad_link", 403, "Link not valid"


class GoneError(ForebayError):
    """The record is past its retention."""

    code, status, title = "gone", 410, "Gone"


class TooLargeError(ForebayError):
    """The body is larger than the limit."""

    code, status, title = "too_large", 413, "Too large"


class DigestError(ForebayError):
    """The bytes are not what their digest says."""

    code, status, title = "digest_mismatch", 400, "Digest mismatch"


class RangeError(ForebayError):
    """The range lies behind the end."""

    code, status, title = "range_not_satisfiable", 416, "Range not satisfiable"


class BlobCorruptError(ForebayError):
    """A blob is missing, or its bytes are not those that were stored."""

    code, status, title = "claim_check_corrupt", 410, "Blob missing or damaged"


class BlobRefusedError(ForebayError):
    """A reference may not be followed from here."""

    code, status, title = "reference_refused", 422, "Reference refused"


class MediaTypeError(ForebayError):
    """The media type or the content encoding is not supported."""

    code, status, title = "unsupported_media_type", 415, "Unsupported media type"


class MethodError(ForebayError):
    """The method is not allowed here."""

    code, status, title = "method_not_allowed", 405, "Method not allowed"


class QueueFullError(ForebayError):
    """The queue is full."""

    code, status, title = "queue_full", 429, "Queue full"


class NoFrameError(ForebayError):
    """No frame came in time."""

    code, status, title = "no_frame", 504, "No frame"


class StreamEndedError(ForebayError):
    """The stream has ended: no frame comes any more."""

    code, status, title = "stream_ended", 410, "Stream ended"


class NoMemoryError(ForebayError):
    """The memory that was asked for is not there."""

    code, status, title = "no_memory", 507, "Not enough memory"


class UnsupportedError(ForebayError):
    """This machine or installation lacks what is needed."""

    code, status, title = "unsupported", 501, "Not supported here"


class RateLimitedError(ForebayError):
    """Submissions come faster than the limit."""

    code, status, title = "rate_limited", 429, "Rate limited"


class OverBudgetError(ForebayError):
    """The producers that share this budget send faster than its rate."""

    code, status, title = "over_budget", 429, "Over budget"


class QuotaExceededError(ForebayError):
    """The tenant holds as much as it may hold."""

    code, status, title = "quota_exceeded", 429, "Quota exceeded"


class InfeasibleError(ForebayError):
    """The ttl or the deadline would pass first."""

    code, status, title = "cannot_meet_deadline", 429, "Deadline cannot be met"

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after_s: float | None = None,
        limit: int | float | None = None,
        errors: tuple[tuple[str, str], ...] = (),
        offer: dict[str, object] | None = None,
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s, limit=limit, errors=errors, members=members)
        self.offer = offer or {}  # members of the problem: what could be asked for instead


class QuarantinedError(ForebayError):
    """This input killed one worker after another and is in quarantine."""

    code, status, title = "quarantined", 422, "Input in quarantine"


class ShedError(ForebayError):
    """The request had to make room for others."""

    code, status, title = "shed", 429, "Made room for others"


class NoWorkerError(ForebayError):
    """No worker of this task is ready."""

    code, status, title = "no_worker", 503, "No worker ready"


class WorkerLostError(ForebayError):
    """The worker died, and there was no time for another try."""

    code, status, title = "worker_lost", 503, "Worker lost"


class DeadlinePassedError(ForebayError):
    """The deadline passed first."""

    code, status, title = "deadline_passed", 504, "Deadline passed"


class HandlerFailedError(ForebayError):
    """The handler failed."""

    code, status, title = "handler_failed", 500, "Handler failed"


class DrainingError(ForebayError):
    """The server is shutting down and takes no new work."""

    code, status, title = "draining", 503, "Draining"


class BreakerOpenError(ForebayError):
    """What it guards has been failing, so it is not called now; `retry_after_s` says when it may be again."""

    code, status, title = "breaker_open", 503, "Breaker open"


class UpstreamBusyError(ForebayError):
    """The server behind an upstream task takes no more now, or cannot be reached."""

    code, status, title = "upstream_busy", 503, "Upstream busy"


class StoreUnavailableError(ForebayError):
    """The store cannot take writes now."""

    code, status, title = "store_unavailable", 503, "Store unavailable"


class DeliveryUnavailableError(ForebayError):
    """The message broker cannot be reached, or refuses. The store is not concerned."""

    code, status, title = "delivery_unavailable", 503, "Delivery unavailable"


class StoreFullError(StoreUnavailableError):
    """The disk is full: nothing new is accepted until there is room."""

    code, status, title = "store_full", 507, "Store full"


class StoreLockedError(ForebayError):
    """Another process owns this data directory."""

    code, status, title = "store_locked", 503, "Store locked"


class StoreVersionError(ForebayError):
    """The store was written by another version."""

    code, status, title = "store_version", 503, "Store version"


class StoreBrokenError(ForebayError):
    """The store failed in a way that leaves its state unknown; this process must end."""

    code, status, title = "store_broken", 503, "Store broken"


class SealedError(ForebayError):
    """The job is encrypted with a key that is not configured."""

    code, status, title = "sealed", 503, "Encrypted"


class ConfigError(ForebayError):
    """A setting is wrong."""

    code, status, title = "config", 422, "Wrong setting"


class AppError(ForebayError):
    """The application cannot be served as it is written."""

    code, status, title = "app", 422, "Application error"


class UnreachableError(ForebayError):
    """The server cannot be reached."""

    code, status, title = "unreachable", 503, "Unreachable"
