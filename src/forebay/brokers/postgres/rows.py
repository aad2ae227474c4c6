"""Rows and records: how a row of `jobs` becomes a record, and a record a row."""

from collections.abc import Sequence
from typing import Any, Final

from forebay.brokers.shared.states import NUMBERS, STATES, key_bytes, key_of
from forebay.core.job import Job, JobRecord, Lease, Standing
from forebay.core.lifecycle import State
from forebay.packed import attempts_of, error_of

Row = tuple[Any, ...]

# In the order of core.job.Job and core.job.Standing, so that a row is two slices.
_JOB: Final = (
    "id", "task", "payload", "created_at", "run_at", "priority", "attempts_max", "expires_at", "deadline_at",
    "tenant", "idempotency_key", "body_hash", "metadata", "redriven_from", "version", "ordering_key",
    "callback_url", "fingerprint", "cache_s",
)  # fmt: skip
_STANDING: Final = (
    "state", "attempt", "fence", "deaths", "releases", "suspect", "cancel_requested", "ready_at",
    "lease_until", "worker", "started_at", "finished_at", "output", "error", "progress", "attempts",
    "checkpoint", "degraded", "cancel_at",
)  # fmt: skip
_KEY, _CHAIN = _JOB.index("idempotency_key"), _JOB.index("ordering_key")
_WIDTH: Final = len(_JOB)


def columns(alias: str, *, output: bool = True) -> str:
    """Return the list of columns that `record_of` reads; without the output where nobody wants it."""
    names = [f"{alias}.{name}" for name in (*_JOB, *_STANDING, "redriven_as", "edited")]
    names[0] += "::text"
    names[-2] += "::text"
    if not output:
        names[_WIDTH + _STANDING.index("output")] = "NULL::bytea"
    return ", ".join(names)


_INSERTED: Final = (
    ("id", "uuid"), ("task", "text"), ("payload", "bytea"), ("created_at", "float8"), ("run_at", "float8"),
    ("priority", "int2"), ("attempts_max", "int4"), ("expires_at", "float8"), ("deadline_at", "float8"),
    ("tenant", "text"), ("idempotency_key", "bytea"), ("body_hash", "bytea"), ("metadata", "bytea"),
    ("redriven_from", "text"), ("version", "text"), ("ordering_key", "bytea"), ("callback_url", "text"),
    ("fingerprint", "bytea"), ("cache_s", "float8"), ("state", "int2"), ("ready_at", "float8"),
    ("waits_until", "float8"), ("size", "int8"),
)  # fmt: skip
INSERT_JOBS: Final = (
    f"INSERT INTO jobs ({', '.join(name for name, _ in _INSERTED)}) SELECT * FROM unnest("
    + ", ".join(f"%s::{kind}[]" for _, kind in _INSERTED)
    + ") ON CONFLICT (id) DO NOTHING RETURNING id::text"
)


def insert_parameters(jobs: Sequence[tuple[Job, State]]) -> list[list[Any]]:
    """Return the arrays of INSERT_JOBS."""
    return [list(column) for column in zip(*(_values(job, state) for job, state in jobs), strict=True)]


def _values(job: Job, state: State) -> tuple[Any, ...]:
    run_at = float(job.run_at)
    return (
        job.id,
        job.task,
        job.payload,
        float(job.created_at),
        run_at,
        job.priority,
        job.attempts_max,
        _float(job.expires_at),
        _float(job.deadline_at),
        job.tenant,
        key_bytes(job.idempotency_key),
        job.body_hash,
        job.metadata,
        job.redriven_from,
        job.version,
        key_bytes(job.ordering_key),
        job.callback_url,
        job.fingerprint,
        float(job.cache_s),
        NUMBERS[state],
        run_at,
        _float(job.waits_until),
        job.size,
    )


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def job_of(row: Row) -> Job:
    """Return the job of a row that begins with `columns`."""
    fields = list(row[:_WIDTH])
    fields[_KEY], fields[_CHAIN] = key_of(fields[_KEY]), key_of(fields[_CHAIN])
    return Job(*fields)


def standing_of(row: Row) -> Standing:
    """Return where the job of such a row stands."""
    fields = list(row[_WIDTH : _WIDTH + len(_STANDING)])
    fields[0] = STATES[fields[0]]
    fields[13] = error_of(fields[13])
    fields[15] = attempts_of(fields[15])
    return Standing(*fields)


def record_of(row: Row) -> JobRecord:
    """Return the record of such a row."""
    at = _WIDTH + len(_STANDING)
    return JobRecord(job_of(row), standing_of(row), row[at], row[at + 1])


def lease_of(row: Row, *, skew_s: float = 0.0) -> Lease:
    """Return the lease of a running job's row, its times by the clock of whoever holds it."""
    stands = standing_of(row)
    assert stands.lease_until is not None
    assert stands.started_at is not None
    return Lease(
        job_of(row),
        stands.fence,
        stands.attempt,
        stands.lease_until + skew_s,
        stands.worker,
        stands.started_at + skew_s,
        stands.ready_at,
        stands.deaths,
        stands.releases,
        stands.suspect,
        stands.attempts,
        stands.cancel_requested,
        stands.checkpoint,
    )
