"""Rows and records: how a row of `jobs` becomes a record, and a record a row."""

from collections.abc import Sequence
from typing import Any, Final

from forebay.brokers.postgres.schema import RUNNING
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
# Arrays of one cost a job that comes alone three times as much as its values.
_INSERT: Final = {
    one: f"INSERT INTO jobs ({', '.join(name for name, _ in _INSERTED)}) SELECT * FROM {source}"
    " ON CONFLICT (id) DO NOTHING RETURNING id::text"
    for one, source in (
        (False, f"unnest({', '.join(f'%s::{kind}[]' for _, kind in _INSERTED)})"),
        (True, f"(VALUES ({', '.join(f'%s::{kind}' for _, kind in _INSERTED)})) AS u"),
    )
}
_NAMES: Final = ", ".join(name for name, _ in _INSERTED)
# One job, running at once where `free` says so: at the first attempt, under the first fence.
_ALONE: Final = (
    "WITH at AS MATERIALIZED (SELECT {clock} AS now), free AS MATERIALIZED (SELECT ({free}) AS yes),"
    f" u AS (SELECT * FROM (VALUES ({', '.join(f'%s::{kind}' for _, kind in _INSERTED)})) AS v({_NAMES})),"
    " runs AS MATERIALIZED (SELECT yes AND (waits_until IS NULL OR waits_until > now) AS yes, now"
    " FROM u, at, free)"
    f" INSERT INTO jobs ({_NAMES}, attempt, fence, worker, started_at, lease_until)"
    f" SELECT {_NAMES.replace('state', f'CASE WHEN r.yes THEN {RUNNING}::int2 ELSE u.state END')},"
    " r.yes::int4, r.yes::int4::int8, CASE WHEN r.yes THEN w.worker ELSE '' END,"
    " CASE WHEN r.yes THEN r.now END, CASE WHEN r.yes THEN r.now + w.lease_s END"
    " FROM u, runs r, (VALUES (%s::text, %s::float8)) AS w(worker, lease_s)"
    " ON CONFLICT (id) DO NOTHING RETURNING state, started_at, lease_until"
)


def insert_alone(job: Job, *, clock: str, free: str) -> tuple[str, Sequence[Any]]:
    """Return the statement that stores a job, and leases it where the expression `free` holds; and the job's
    parameters. Those of the expressions come before, worker and length of the lease after."""
    return _ALONE.format(clock=clock, free=free), _values(job, State.QUEUED)


def insert_of(jobs: Sequence[tuple[Job, State]]) -> tuple[str, Sequence[Any]]:
    """Return the statement that stores jobs where their ids are new, and its parameters."""
    rows = [_values(job, state) for job, state in jobs]
    return _INSERT[len(rows) == 1], parameters_of(rows)


def parameters_of(rows: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
    """Return the values of one row, or an array for each column of many."""
    return rows[0] if len(rows) == 1 else [list(column) for column in zip(*rows, strict=True)]


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
