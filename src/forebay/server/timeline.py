"""timeline: what happened to a job, oldest first, from its record alone: true after a restart too."""

from typing import Any, Final

import msgspec

from forebay.core.degraded import level_word
from forebay.core.job import Attempt, JobError, JobRecord, Standing
from forebay.core.lifecycle import FINAL, Event, State
from forebay.server.times import stamp

# What an ended attempt is called. `exhausted` stays: the end of the job follows it under its own name.
_RETRIED: Final = "retried"
_ENDS: Final = frozenset({Event.CANCELLED, Event.DEADLINE_PASSED})

View = dict[str, Any]


class ErrorView(msgspec.Struct):
    """Why a job or an attempt ended badly. `code` is stable."""

    code: str
    message: str
    type: str
    attempt: int


class EventView(msgspec.Struct, omit_defaults=True):
    """One thing that happened to a job."""

    event: str
    at: str | None  # null where it is not known
    worker: str | None = None
    attempt: int | None = None
    error: ErrorView | None = None
    until: str | None = None  # of scheduled
    next_at: str | None = None  # when a retried or deferred job is queued again
    waited_s: float | None = None  # of started: since it was queued
    ran_s: float | None = None
    degraded: str | None = None  # of the end of the job: what made its result in place of the task itself
    took_s: float | None = None  # of the end of the job: since it was accepted
    count: int | None = None  # of omitted: attempts before those that are kept


def error_of(error: JobError) -> dict[str, object]:
    """Return the error of a job as answers show it."""
    return {"code": error.code, "message": error.message, "type": error.type, "attempt": error.attempt}


def timeline(record: JobRecord, now: float) -> list[View]:
    """Return the events, bounded by ATTEMPTS_KEPT ended attempts; `omitted` counts those before them.

    `waited_s` of a start counts from when the job was queued, `ran_s` of an end from its start, `took_s` of
    the last event from the submission.
    """
    job, standing = record.job, record.standing
    events: list[View] = [_event("accepted", job.created_at)]
    if job.run_at > job.created_at:
        events.append(_event("scheduled", job.created_at, until=stamp(job.run_at)))
    ends_at = _end(standing)
    queued_at = job.run_at
    if standing.fence or (queued_at <= now and (ends_at is None or queued_at < ends_at)):
        events.append(_event("queued", queued_at))
    again = _runs_or_succeeded(standing)
    omitted = standing.fence - len(standing.attempts) - again
    if omitted > 0:
        events.append({"event": "omitted", "at": None, "count": omitted})
    for ended in standing.attempts:
        events += _attempt(ended, queued_at)
        queued_at = ended.ended_at if ended.next_at is None else ended.next_at
        if ended.next_at is not None and (ended is not standing.attempts[-1] or again or _came(standing)):
            events.append(_event("queued", queued_at))
    if again and standing.started_at is not None:
        started = _event("started", standing.started_at, attempt=standing.attempt, worker=standing.worker)
        events.append(started | {"waited_s": _span(queued_at, standing.started_at)})
        if standing.cancel_requested and standing.state is State.RUNNING:
            at = standing.cancel_at  # None: asked of a store that did not keep it
            events.append({"event": "cancel_requested", "at": None if at is None else stamp(at)})
    if ends_at is not None:
        events.append(_event(standing.state.value, ends_at, took_s=_span(job.created_at, ends_at)))
        if standing.state is State.SUCCEEDED and standing.started_at is not None:
            events[-1]["ran_s"] = _span(standing.started_at, ends_at)
        if (word := level_word(standing.degraded)) is not None:
            events[-1]["degraded"] = word
    return events


def _attempt(ended: Attempt, queued_at: float) -> list[View]:
    started = _event("started", ended.started_at, attempt=ended.attempt, worker=ended.worker)
    started["waited_s"] = _span(queued_at, ended.started_at)
    name = _RETRIED if ended.outcome is Event.FAILED else ended.outcome.value
    end = _event(name, ended.ended_at, attempt=ended.attempt, ran_s=_span(ended.started_at, ended.ended_at))
    if ended.error is not None:
        end["error"] = error_of(ended.error)
    if ended.next_at is not None:
        end["next_at"] = stamp(ended.next_at)
    # A cancel and a deadline end the job: its last event says so.
    return [started] if ended.outcome in _ENDS else [started, end]


def _came(standing: Standing) -> bool:
    """Say whether the time that the job waited for after its last attempt has come."""
    return standing.state not in {State.RETRYING, State.SCHEDULED} and standing.state not in FINAL


def _end(standing: Standing) -> float | None:
    return standing.finished_at if standing.state in FINAL else None


def _runs_or_succeeded(standing: Standing) -> bool:
    return standing.lease_until is not None or standing.state is State.SUCCEEDED


def _event(name: str, at: float, **more: object) -> View:
    return {"event": name, "at": stamp(at), **more}


def _span(since: float, until: float) -> float:
    return round(max(0.0, until - since), 6)
