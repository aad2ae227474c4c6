"""Rows and records: the SQL texts, and how a row becomes a record and back."""

import math
from typing import Any, Final, NamedTuple

from forebay.core.job import Job, JobRecord, Lease, Standing
from forebay.core.lifecycle import FINAL, State
from forebay.packed import attempts_of, error_of

Row = tuple[Any, ...]

# Numbers in the file: never change one, add at the end.
STATE_NUMBERS: Final[dict[State, int]] = {
    State.SCHEDULED: 0,
    State.QUEUED: 1,
    State.RUNNING: 2,
    State.RETRYING: 3,
    State.SUCCEEDED: 4,
    State.DEAD: 5,
    State.CANCELLED: 6,
    State.EXPIRED: 7,
}
STATES: Final = tuple(STATE_NUMBERS)
FINAL_NUMBERS: Final = frozenset(STATE_NUMBERS[state] for state in FINAL)
SUSPECT: Final = 1
CANCEL_REQUESTED: Final = 2
DEGRADED_SHIFT: Final = 2  # of results: the four bits above those two, see core.degraded

# In the order of core.job.Job behind its id and task, so that a row is a slice of the record.
INSERT_JOB: Final = (
    "INSERT INTO jobs(seq, ms, task, payload, created_at, run_at, priority, attempts_max, expires_at,"
    " deadline_at, tenant, idempotency_key, body_hash, metadata, redriven_from, version, ordering_key,"
    " callback_url, fingerprint, cache_s) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)
INSERT_RUN: Final = (
    "INSERT INTO runs(seq, state, attempt, fence, deaths, releases, flags, ready_at, lease_until, started_at,"
    " worker, error, progress, attempts) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)
INSERT_RESULT: Final = "INSERT INTO results VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
DELETE_RUN: Final = "DELETE FROM runs WHERE seq = ?"
DELETE_RUNS: Final = "DELETE FROM runs WHERE seq BETWEEN ? AND ?"

_JOB: Final = (
    "j.seq, j.ms, j.task, j.priority, j.attempts_max, j.created_at, j.run_at, j.expires_at, j.deadline_at,"
    " j.tenant, j.idempotency_key, j.body_hash, j.redriven_from, j.version, j.ordering_key, j.callback_url,"
    " j.fingerprint, j.cache_s, j.metadata, j.payload"
)
_JOB_WIDTH: Final = 20
_RUN: Final = (
    "r.state, r.attempt, r.fence, r.deaths, r.releases, r.flags, r.ready_at, r.lease_until, r.started_at,"
    " r.worker, r.error, r.progress, r.attempts, r.checkpoint, r.cancel_at"
)
_RESULT: Final = (
    "f.state, f.attempt, f.fence, f.deaths, f.releases, f.flags, f.ready_at, f.finished_at, f.started_at,"
    " f.worker, f.error, f.output, f.attempts, NULL, NULL"
)
_WIDTH: Final = 15  # of a run and of a result, in the same order but for three columns
SELECT_JOB: Final = f"SELECT {_JOB} FROM jobs j WHERE j.seq = ?"
SELECT_RECORD: Final = (
    f"SELECT {_JOB}, {_RUN}, {_RESULT}, d.successor, e.payload FROM jobs j LEFT JOIN runs r ON r.seq = j.seq"
    " LEFT JOIN results f ON f.seq = j.seq LEFT JOIN redrives d ON d.seq = j.seq"
    " LEFT JOIN edits e ON e.seq = j.seq WHERE j.seq = ?"
)
SELECT_GRANTABLE: Final = (
    f"SELECT {_JOB}, {_RUN} FROM jobs j LEFT JOIN runs r ON r.seq = j.seq WHERE j.seq = ?"
)
SELECT_RUNS: Final = f"SELECT {_JOB}, {_RUN} FROM runs r JOIN jobs j ON j.seq = r.seq WHERE r.state = ?"


class Found(NamedTuple):
    """A stored job with where it stands, its row's sequence, and its task's number."""

    seq: int
    task: int
    record: JobRecord


def job_of(row: Row, job_id: str, task: str) -> Job:
    """Return the job of a row of jobs."""
    (_, _, _, priority, tries, created_at, run_at, expires_at, deadline_at) = row[:9]
    (tenant, key, body_hash, redriven_from, version, ordering_key, callback_url) = row[9:16]
    (fingerprint, cache_s, metadata, payload) = row[16:_JOB_WIDTH]
    return Job(
        job_id,
        task,
        payload,
        created_at,
        run_at,
        priority,
        tries,
        expires_at,
        deadline_at,
        tenant,
        key,
        body_hash,
        metadata,
        redriven_from,
        version,
        ordering_key,
        callback_url,
        fingerprint,
        cache_s,
    )


def standing_of(row: Row) -> Standing:
    """Return where a job stands from a row that was read by SELECT_RECORD."""
    run, result = row[_JOB_WIDTH : _JOB_WIDTH + _WIDTH], row[_JOB_WIDTH + _WIDTH : _JOB_WIDTH + 2 * _WIDTH]
    if result[0] is not None:
        return _standing(result, finished_at=result[7], output=result[11])
    if run[0] is not None:
        return _standing(run, lease_until=run[7], progress=run[11])
    return Standing(State.QUEUED, ready_at=row[6])


def _standing(
    row: Row,
    *,
    lease_until: float | None = None,
    finished_at: float | None = None,
    output: bytes | None = None,
    progress: bytes | None = None,
) -> Standing:
    state, attempt, fence, deaths, releases, flags, ready_at, _, started_at, worker, error = row[:11]
    attempts, checkpoint, cancel_at = row[12:]
    return Standing(
        STATES[state],
        attempt,
        fence,
        deaths,
        releases,
        bool(flags & SUSPECT),
        bool(flags & CANCEL_REQUESTED),
        ready_at,
        lease_until,
        worker,
        started_at,
        finished_at,
        output,
        error_of(error),
        progress,
        attempts_of(attempts),
        checkpoint,
        flags >> DEGRADED_SHIFT,
        cancel_at,
    )


def lease_of(job: Job, run: Row | None, *, until: float, worker: str, now: float) -> Lease:
    """Return the lease granted now on a job whose runs columns before the grant were `run`."""
    if run is None:
        return Lease(job, 1, 1, until, worker, now, job.run_at)
    _, attempt, fence, deaths, releases, flags, ready_at = run[:7]
    return Lease(
        job,
        fence + 1,
        attempt + 1,
        until,
        worker,
        now,
        ready_at,
        deaths,
        releases,
        bool(flags & SUSPECT),
        attempts_of(run[12]),
        bool(flags & CANCEL_REQUESTED),
        run[13],
    )


def run_of(row: Row) -> Row | None:
    """Return the runs columns of a row read by SELECT_GRANTABLE or SELECT_RUNS; None when it has none."""
    return row[_JOB_WIDTH : _JOB_WIDTH + _WIDTH] if row[_JOB_WIDTH] is not None else None


def held_lease_of(job: Job, run: Row) -> Lease:
    """Return the lease that a running job's row tells of."""
    _, attempt, fence, deaths, releases, flags, ready_at, until, started_at, worker = run[:10]
    return Lease(
        job,
        fence,
        attempt,
        until,
        worker,
        started_at,
        ready_at,
        deaths,
        releases,
        bool(flags & SUSPECT),
        attempts_of(run[12]),
        bool(flags & CANCEL_REQUESTED),
        run[13],
    )


def flags_of(suspect: bool, cancel_requested: bool) -> int:
    """Return the flags column."""
    return (SUSPECT if suspect else 0) | (CANCEL_REQUESTED if cancel_requested else 0)


def end_of(job: Job) -> float:
    """Return the instant from which a job may not be granted, infinity when there is none."""
    expires_at, deadline_at = job.expires_at, job.deadline_at
    if expires_at is None:
        return math.inf if deadline_at is None else deadline_at
    return expires_at if deadline_at is None or expires_at < deadline_at else deadline_at
