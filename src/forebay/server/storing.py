"""Hand jobs to the broker; what an engine raises becomes one of our errors, and readiness hears of it."""

from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from forebay.core.job import Job, JobRecord, Receipt, Verdict
from forebay.core.many import TASK_OF, getter
from forebay.errors import (
    ForebayError,
    GoneError,
    IdempotencyConflictError,
    NotFoundError,
    StoreBrokenError,
    StoreUnavailableError,
)
from forebay.server.caller import caller
from forebay.server.front import Front

_TASK_AND_PRIORITY = getter("task", "priority")
T = TypeVar("T")
UNKNOWN_RETRY_S = 1.0


async def written(front: Front, verb: Awaitable[T]) -> T:
    """Return what a writing verb returns.

    Raises a ForebayError with a status in place of anything else. The outcome is unknown then: a caller
    repeats with the same idempotency key.
    """
    try:
        result = await verb
    except Exception as error:
        told = _told(front, error)
        raise told from told.__cause__
    front.lifecycle.store_worked()
    return result


def _told(front: Front, error: Exception) -> ForebayError:
    """Return what a caller is told of a write that failed; readiness hears of it."""
    if not isinstance(error, ForebayError):
        front.log.exception("store_write_failed", error=type(error).__name__)  # noqa: LOG004 - called by handlers
        unknown = StoreUnavailableError(
            "the write failed and its outcome is not known: repeat it with the same idempotency key",
            retry_after_s=UNKNOWN_RETRY_S,
        )
        unknown.__cause__ = error
        error = unknown
    if isinstance(error, StoreBrokenError):
        front.lifecycle.store_failed(error, now=front.clock.now())
        if front.on_store_broken is not None:
            front.on_store_broken(error)
    elif isinstance(error, StoreUnavailableError):
        front.lifecycle.store_failed(error, now=front.clock.now())
        if error.retry_after_s is None:
            error.retry_after_s = UNKNOWN_RETRY_S
    return error


async def store(front: Front, jobs: Sequence[Job], *, now: float) -> list[Receipt]:
    """Return one receipt per job, in order, once they are durable. Raises as `written` does.

    What the gate let in is counted here, by what became of it: only a stored job was accepted.
    """
    try:
        receipts = await front.broker.enqueue(jobs, now=now)
    except Exception as error:
        told = not_stored(front, jobs, error)
        raise told from told.__cause__
    count_stored(front, jobs, receipts, now=now)
    return receipts


def not_stored(front: Front, jobs: Sequence[Job], error: Exception) -> ForebayError:
    """Return what callers are told whose jobs the engine did not take, counted as refused. For handlers."""
    told = _told(front, error)
    for task, count in Counter([job.task for job in jobs]).items():
        front.meters.for_task(task).refused(told.code, count)
    return told


def count_stored(front: Front, jobs: Sequence[Job], receipts: Sequence[Receipt], *, now: float) -> None:
    """Count what became of jobs that the engine has answered for."""
    if receipts[0].verdict is not Verdict.SPOOLED:
        front.lifecycle.store_worked()
    count_receipts(front, jobs, receipts, now=now)


def count_receipts(front: Front, jobs: Sequence[Job], receipts: Sequence[Receipt], *, now: float) -> None:
    """Count what the engine answered to submissions."""
    _count_arrivals(front, jobs, now)
    stored, admitted = Verdict.STORED, Counter(map(TASK_OF, jobs))
    for job, (verdict, _, _) in zip(jobs, receipts, strict=True):
        if verdict is stored or verdict is Verdict.SPOOLED:
            continue
        admitted[job.task] -= 1
        meter = front.meters.for_task(job.task)
        if verdict is Verdict.REPLAYED:
            meter.replayed(1)
        elif verdict is Verdict.JOINED:
            meter.joined(1)
        else:
            meter.refused(IdempotencyConflictError.code, 1)
    for task, count in admitted.items():
        front.meters.for_task(task).admitted(count)


def _count_arrivals(front: Front, jobs: Sequence[Job], now: float) -> None:
    """Tell the estimators how much of which urgency comes."""
    if len(jobs) == 1:
        estimator = front.estimators.get(jobs[0].task)
        if estimator is not None:
            estimator.arrived(jobs[0].priority, 1, now=now)
        return
    for (task, priority), count in Counter(map(_TASK_AND_PRIORITY, jobs)).items():
        estimator = front.estimators.get(task)
        if estimator is not None:
            estimator.arrived(priority, count, now=now)


async def record_of(front: Front, job_id: str, *, now: float) -> JobRecord:
    """Return the job. Raises GoneError past its retention, NotFoundError for any other unknown id.

    To a caller that sees one tenant alone, jobs of others, those that were removed too, are as unknown as
    those that never were.
    """
    record = await front.broker.get(job_id, now=now) if len(job_id) == 36 else None
    own = caller().own
    if record is not None and own in (None, record.job.tenant):
        return record
    if record is None and len(job_id) == 36 and await front.broker.was_purged(job_id, tenant=own, now=now):
        raise GoneError(f"the job ended and was kept as long as jobs are kept ({job_id})")
    raise NotFoundError("no job has this id")
