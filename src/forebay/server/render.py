"""A job as JSON bytes, fast: strings that are known to be safe are not encoded again."""

import zlib
from functools import lru_cache

import msgspec

from forebay.core.degraded import level_word
from forebay.core.estimator import Eta
from forebay.core.evidence import cause_of
from forebay.core.job import (
    PRIORITY_HIGH,
    PRIORITY_LOW,
    PRIORITY_NORMAL,
    Job,
    JobRecord,
)
from forebay.core.lifecycle import STATUS, State
from forebay.core.units import print_duration
from forebay.server.links import Links
from forebay.server.timeline import error_of, timeline
from forebay.server.times import stamp

INLINE_BYTES_MAX = 16 * 1024  # of a result in the body of a callback

_encode = msgspec.json.encode
_STATUS_WORDS = {state.value: status for state, status in STATUS.items()}  # an enum hashes slowly
_QUEUED_STATUS = _STATUS_WORDS["queued"]
_PRIORITY_WORDS = {PRIORITY_HIGH: '"high"', PRIORITY_NORMAL: '"normal"', PRIORITY_LOW: '"low"'}


def job_json(
    record: JobRecord,
    *,
    now: float,
    position: int | None = None,
    eta: Eta | None = None,
    with_result: bool = True,
    payload: bool = False,
    waits_for: str | None = None,
    download: str | None = None,
) -> bytes:
    """Return the job as CONTRACT section 3 shows it. `result` is null without `with_result`."""
    job, standing = record.job, record.standing
    state = standing.state.value
    running = standing.lease_until is not None
    created = stamp(job.created_at)
    run_at = created if job.run_at == job.created_at else stamp(job.run_at)
    head = (
        f'{{"job_id":"{job.id}","task":{_text(job.task)},"status":"{_STATUS_WORDS[state]}","state":"{state}",'
        f'"created_at":"{created}","started_at":{_time(standing.started_at)},'
        f'"finished_at":{_time(standing.finished_at)},"run_at":"{run_at}",'
        f'"expires_at":{_time(job.expires_at)},"deadline_at":{_time(job.deadline_at)},'
        f'"retry_at":{_time(standing.ready_at) if state == "retrying" else "null"},'
        f'"attempt":{standing.attempt},"attempts_max":{job.attempts_max},'
        f'"priority":{_PRIORITY_WORDS.get(job.priority, job.priority)},'
        f'"ordering_key":{"null" if job.ordering_key is None else _text(job.ordering_key)},'
        f'"waits_for":{_id(waits_for)},'
        f'"cancel_requested":{"true" if standing.cancel_requested else "false"},'
        f'"degraded":{_text(level_word(standing.degraded)) if standing.degraded else "null"},"progress":'
    )
    output = standing.output if with_result else None
    parts = [
        head.encode(),
        standing.progress if running and standing.progress else b"null",
        b',"result":',
        b"null" if output is None else output,
        b',"error":',
        b"null" if standing.error is None or state == "succeeded" else _encode(error_of(standing.error)),
        _line(job, position, eta, now, download).encode(),
        b',"metadata":',
        job.metadata or b"{}",
        f',"redriven_from":{_id(job.redriven_from)},"redriven_as":{_id(record.redriven_as)},"timeline":'.encode(),
        _timeline(record, created if run_at is created else "", now),
    ]
    if payload:
        cause = cause_of(job, standing).value
        parts += [b',"payload":', job.payload]
        edited = "false" if record.edited is None else "true"
        worker = _text(standing.worker)
        parts.append(f',"worker":{worker},"cause":"{cause}","edited":{edited}'.encode())
    parts.append(b',"spooled":true}' if record.spooled else b"}")
    return b"".join(parts)


def accepted_json(job: Job, *, now: float, position: int, eta: Eta | None) -> bytes:
    """Return what `job_json` returns of a job that was stored a moment ago and may run at once.

    Half of its fields are the same for all such jobs, and it is the answer to every single submission.
    """
    created = stamp(job.created_at)
    text = (
        f'{{"job_id":"{job.id}","task":{_text(job.task)},"status":"{_QUEUED_STATUS}","state":"queued",'
        f'"created_at":"{created}","started_at":null,"finished_at":null,"run_at":"{created}",'
        f'"expires_at":{_time(job.expires_at)},"deadline_at":{_time(job.deadline_at)},"retry_at":null,'
        f'"attempt":0,"attempts_max":{job.attempts_max},'
        f'"priority":{_PRIORITY_WORDS.get(job.priority, job.priority)},'
        f'"ordering_key":{"null" if job.ordering_key is None else _text(job.ordering_key)},'
        '"waits_for":null,"cancel_requested":false,"degraded":null,"progress":null,"result":null,"error":null'
        f'{_line(job, position, eta, now, None)},"metadata":{job.metadata.decode() or "{}"},'
        f'"redriven_from":{_id(job.redriven_from)},"redriven_as":null,"timeline":'
        f'[{{"event":"accepted","at":"{created}"}},{{"event":"queued","at":"{created}"}}]}}'
    )
    return text.encode()


def dead_letter_json(record: JobRecord, *, hidden: frozenset[str], now: float) -> bytes:
    """Return a dead letter with the evidence of its attempts; `hidden` mates are left out."""
    attempts = [
        {
            "attempt": ended.attempt,
            "started_at": stamp(ended.started_at),
            "ended_at": stamp(ended.ended_at),
            "outcome": ended.outcome.value,
            "worker": ended.worker,
            "error": None if ended.error is None else error_of(ended.error),
            "log_tail": ended.log.split("\n") if ended.log else [],
            "batch_mates": [mate for mate in ended.mates if mate not in hidden],
        }
        for ended in record.standing.attempts
    ]
    tails = [attempt["log_tail"] for attempt in attempts if attempt["log_tail"]]
    mates = [mate for ended in record.standing.attempts for mate in ended.mates if mate not in hidden]
    told = {
        "edited_payload": None if record.edited is None else msgspec.Raw(record.edited),
        "attempts": attempts,
        "log_tail": tails[-1] if tails else [],
        "batch_mates": list(dict.fromkeys(mates)),
    }
    return job_json(record, now=now, payload=True)[:-1] + b"," + _encode(told)[1:]


def etag(record: JobRecord) -> bytes:
    """Return a weak tag of everything durable about the job; position and eta are not part of it."""
    standing = record.standing
    told = (
        f"{standing.state.value}{standing.attempt}.{standing.fence}.{standing.ready_at}."
        f"{standing.cancel_requested}.{record.redriven_as}.{record.job.priority}.{record.job.task}."
    ).encode()
    return b'W/"%08x-%d"' % (zlib.crc32(told + (standing.progress or b"")), standing.fence)


def _timeline(record: JobRecord, created: str, now: float) -> bytes:
    """Return the timeline as JSON text. What nearly every job goes through is written straight down.

    `created` is the instant of the submission as text, empty for a job that was to wait for a time.
    """
    standing = record.standing
    state = standing.state
    if created and standing.fence == 0 and state is State.QUEUED:
        return f'[{{"event":"accepted","at":"{created}"}},{{"event":"queued","at":"{created}"}}]'.encode()
    started_at, ended_at = standing.started_at, standing.finished_at
    plain = standing.fence == 1 and state is State.SUCCEEDED and not (standing.attempts or standing.degraded)
    if not (created and plain) or started_at is None or ended_at is None:
        return _encode(timeline(record, now))
    begun = record.job.created_at
    return (
        f'[{{"event":"accepted","at":"{created}"}},{{"event":"queued","at":"{created}"}},{{"event":"started",'
        f'"at":"{stamp(started_at)}","attempt":{standing.attempt},"worker":{_text(standing.worker)},'
        f'"waited_s":{max(0.0, started_at - begun):.6f}}},{{"event":"succeeded","at":"{stamp(ended_at)}",'
        f'"took_s":{max(0.0, ended_at - begun):.6f},"ran_s":{max(0.0, ended_at - started_at):.6f}}}]'
    ).encode()


def eta_of(eta: Eta | None, now: float) -> str:
    """Return an ETA as JSON text."""
    if eta is None:
        return "null"
    message = f"Your request has been received. Estimated completion: about {print_duration(eta.p50_s)}."
    return (
        f'{{"p50_s":{eta.p50_s:.3f},"p90_s":{eta.p90_s:.3f},"p50_at":"{stamp(now + eta.p50_s)}",'
        f'"p90_at":"{stamp(now + eta.p90_s)}","message":"{message}"}}'
    )


def webhook_json(record: JobRecord, *, now: float, links: Links | None = None) -> bytes:
    """Return the body of a callback: the finished job, its result inline up to INLINE_BYTES_MAX.

    A larger one is null, `result_omitted` is true, and links.result leads to it.
    """
    output, download = record.standing.output, None if links is None else download_of(record, links, now=now)
    if output is None or len(output) <= INLINE_BYTES_MAX:
        return job_json(record, now=now, download=download)
    shown = job_json(record, now=now, with_result=False, download=download)
    return shown[:-1] + b',"result_omitted":true}'


def download_of(record: JobRecord, links: Links, *, now: float) -> str | None:
    """Return the signed link to the result that goes with a job; None when it has none or none is wanted."""
    if record.standing.state is not State.SUCCEEDED:
        return None
    return links.of_result(record.job.id, now=now)


def _line(job: Job, position: int | None, eta: Eta | None, now: float, download: str | None) -> str:
    self = f"/v1/jobs/{job.id}"
    told = f',"deliveries":"{self}/deliveries"' if job.callback_url is not None else ""
    if download is not None:
        told += f',"download":"{download}"'
    return (
        f',"position":{"null" if position is None else position},"eta":{eta_of(eta, now)},'
        f'"links":{{"self":"{self}","result":"{self}/result","events":"{self}/events"{told}}}'
    )


def _time(at: float | None) -> str:
    return "null" if at is None else f'"{stamp(at)}"'


def _id(job_id: str | None) -> str:
    return "null" if job_id is None else f'"{job_id}"'


@lru_cache(maxsize=1024)
def _text(value: str | None) -> str:
    return _encode(value).decode()
