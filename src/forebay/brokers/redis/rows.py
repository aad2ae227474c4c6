"""Rows and records: how the fields of a job's hash become a record, and a job becomes fields."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from forebay.brokers.shared.states import STATES, key_bytes, key_of
from forebay.core.blobs import named
from forebay.core.job import Job, JobError, JobRecord, Lease, Standing
from forebay.core.lifecycle import Event
from forebay.core.outbox import endpoint_of
from forebay.core.settle import waiting_error
from forebay.packed import attempts_of, error_of


class Packed(msgspec.Struct, array_like=True):
    """What of a job never changes and no script asks for."""

    payload: bytes
    created_at: float
    run_at: float
    attempts_max: int
    expires_at: float | None
    deadline_at: float | None
    idempotency_key: bytes | None
    redriven_from: str | None
    ordering_key: bytes | None
    callback_url: str | None
    cache_s: float


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(Packed).decode


def item_of(job: Job) -> tuple[str, list[bytes], list[str]]:
    """Return a submission as the scripts take it: id, fields, blobs that its payload names."""
    packed = Packed(
        job.payload,
        float(job.created_at),
        float(job.run_at),
        job.attempts_max,
        _float(job.expires_at),
        _float(job.deadline_at),
        key_bytes(job.idempotency_key),
        job.redriven_from,
        key_bytes(job.ordering_key),
        job.callback_url,
        float(job.cache_s),
    )
    fields: list[tuple[bytes, Any]] = [
        (b"j", _ENCODE(packed)),
        (b"task", job.task),
        (b"tenant", job.tenant),
        (b"prio", job.priority),
        (b"size", job.size),
        (b"ready", float(job.run_at)),
        (b"ver", job.version),
        (b"bh", job.body_hash),
        (b"meta", job.metadata),
        (b"cs", float(job.cache_s)),
        (b"dl", _float(job.deadline_at)),
        (b"ex", _float(job.expires_at)),
        (b"wu", _float(job.waits_until)),
        (b"fp", job.fingerprint),
        (b"from", job.redriven_from),
        (b"url", job.callback_url),
        (b"ep", None if job.callback_url is None else endpoint_of(job.callback_url)),
        (b"ik", None if job.idempotency_key is None else key_name(job)),
        (b"chain", None if job.ordering_key is None else _ENCODE((job.tenant, key_bytes(job.ordering_key)))),
    ]
    return job.id, flat(fields), list(named(job.payload))


def key_name(job: Job) -> bytes:
    """Return what stands for the tenant and the idempotency key of a job."""
    return _ENCODE((job.tenant, key_bytes(job.idempotency_key)))


def flat(fields: Sequence[tuple[bytes, Any]]) -> list[bytes]:
    """Return fields and values as texts, without those that are None."""
    return [part for name, value in fields if value is not None for part in (name, text(value))]


def text(value: Any) -> bytes:
    """Return a value as a field holds it."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, bool):
        return b"1" if value else b"0"
    return repr(value).encode()


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def number(value: bytes | None) -> float | None:
    """Return the time of a field."""
    return None if value is None else float(value)


def record_of(found: Sequence[Any]) -> JobRecord:
    """Return the record of an id and its row (`ROW` of lib.lua)."""
    job_id, row = found[0].decode(), found[1]
    packed = _DECODE(row[0])
    job = Job(
        job_id,
        row[1].decode(),
        packed.payload,
        packed.created_at,
        packed.run_at,
        int(row[3]),
        packed.attempts_max,
        packed.expires_at,
        packed.deadline_at,
        row[2].decode(),
        key_of(packed.idempotency_key),
        row[6],
        row[7],
        packed.redriven_from,
        row[4].decode(),
        key_of(packed.ordering_key),
        packed.callback_url,
        row[5],
        packed.cache_s,
    )
    return JobRecord(job, _standing_of(row), None if row[28] is None else row[28].decode(), row[29])


def _standing_of(row: Sequence[Any]) -> Standing:
    attempt = int(row[9] or 0)
    return Standing(
        STATES[int(row[8])],
        attempt,
        int(row[10] or 0),
        int(row[11] or 0),
        int(row[12] or 0),
        row[13] == b"1",
        row[14] == b"1",
        float(row[15]),
        number(row[16]),
        (row[17] or b"").decode(),
        number(row[18]),
        number(row[19]),
        row[20],
        _error_of(row[21], row[22], attempt),
        row[23],
        attempts_of(row[24]),
        row[25],
        int(row[26] or 0),
        number(row[27]),
    )


def _error_of(error: bytes | None, event: bytes | None, attempt: int) -> JobError | None:
    """Return the error of a job; how a waiting one ended is kept as the name of the event alone."""
    return error_of(error) if event is None else waiting_error(Event(event.decode()), attempt)


def lease_of(found: Sequence[Any], *, skew_s: float = 0.0) -> Lease:
    """Return the lease of a running job, its times by the clock of whoever holds it."""
    job, stands, *_ = record_of(found)
    assert stands.lease_until is not None
    assert stands.started_at is not None
    return Lease(
        job,
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
