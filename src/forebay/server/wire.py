"""A submission as it comes in: bytes -> Submission -> Job, strict and fast.

The payload is kept as the bytes that came. Of doubled names the last one counts, in the envelope and in
the payload alike, here and in the child. A payload is decoded once at the door, so that every task, also
one that takes any JSON, refuses the same numbers and texts.
"""

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, NoReturn

import msgspec

from forebay.core.callback import CallbackRules, read_callback
from forebay.core.job import PRIORITY_HIGH, PRIORITY_LEAST, PRIORITY_LOW, PRIORITY_NORMAL, Job
from forebay.core.task import TaskSpec
from forebay.core.units import duration_s
from forebay.errors import ForebayError, InvalidError, MalformedError, TooLargeError
from forebay.server.asking import nearest, shown
from forebay.server.asks import EditAsk
from forebay.server.limits import (
    ATTEMPTS_CAP,
    HORIZON_S,
    IDEMPOTENCY_KEY_LENGTH_MAX,
    METADATA_BYTES_MAX,
    METADATA_ENTRIES_MAX,
    ORDERING_KEY_LENGTH_MAX,
)
from forebay.server.nesting import is_flat, is_too_deep, too_deep
from forebay.server.times import instant

PRIORITY_NAMES = {"high": PRIORITY_HIGH, "normal": PRIORITY_NORMAL, "low": PRIORITY_LOW}
_METADATA_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_IDEMPOTENCY_KEY = re.compile(rf"[\x21-\x7e]{{1,{IDEMPOTENCY_KEY_LENGTH_MAX}}}", re.ASCII)
_HALF_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_UNKNOWN_FIELD = re.compile(r"unknown field `(.*?)`(?: - at `\$\.?(.*)`)?$", re.DOTALL)
_AT = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)


class Submission(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One job as a client asks for it."""

    task: str
    payload: msgspec.Raw = msgspec.Raw()
    priority: int | str | None = None
    ttl: int | float | str | None = None
    deadline: int | float | str | None = None
    run_at: str | None = None
    metadata: dict[str, str | int | float | bool | None] | None = None
    attempts_max: int | None = None
    idempotency_key: str | None = None
    callback_url: str | None = None
    ordering_key: str | None = None


_STRICT = CallbackRules()
FIELDS = Submission.__struct_fields__
_HASHED = tuple(name for name in FIELDS if name not in {"payload", "idempotency_key"})
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)
_decode_submission = msgspec.json.Decoder(Submission).decode
_decode_any = msgspec.json.Decoder().decode
_encode_canonical = msgspec.json.Encoder(order="deterministic").encode


def decode(body: bytes) -> tuple[Submission, Any]:
    """Return the submission and its decoded payload.

    Raises MalformedError for what is not JSON (UTF-8, no byte order mark, nested at most NESTING_MAX deep,
    numbers that JSON can carry), InvalidError for a field that breaks a rule.
    """
    try:
        if not body.isascii():
            body.decode()
        submission = _decode_submission(body)
        raw = submission.payload
        if not len(raw):
            raise InvalidError("payload is missing", errors=(("payload", "is missing"),))
        payload = _decode_any(raw)
    except _UNREADABLE as error:
        raise _decode_error(error, body) from None
    if not is_flat(payload) and is_too_deep(body, payload):
        raise too_deep()
    return submission, payload


def decode_payload(body: bytes) -> Any:
    """Return the decoded payload of a body that is the payload itself; its rules are those of `decode`."""
    try:
        if not body.isascii():
            body.decode()
        payload = _decode_any(body)
    except _UNREADABLE as error:
        raise _decode_error(error, body) from None
    if is_too_deep(body, payload):
        raise too_deep()
    return payload


def payload_of(body: bytes) -> tuple[bytes, Any]:
    """Return the payload of `{"payload": …}` as it came, and decoded; all its rules are those of `decode`."""
    try:
        ask = msgspec.json.decode(body, type=EditAsk)
    except _UNREADABLE as error:
        raise _decode_error(error, body) from None
    return bytes(ask.payload), decode_payload(bytes(ask.payload))


def job_from(
    submission: Submission,
    spec: TaskSpec,
    *,
    job_id: str,
    now: float,
    body_hash: bytes = b"",
    tenant: str = "",
    rules: CallbackRules = _STRICT,
) -> Job:
    """Return the job to store. Raises InvalidError naming the field and the rule."""
    run_at = now
    if submission.run_at is not None:
        run_at = max(now, _instant("run_at", submission.run_at, now))
    ttl_s = spec.ttl_s if submission.ttl is None else _ttl_s(submission.ttl)
    deadline_at = _deadline_at(submission.deadline, spec, now)
    if deadline_at is not None and run_at >= deadline_at:
        told = () if submission.deadline is None else (submission.deadline,)
        _refuse("deadline", "lie after run_at", *told)
    priority = spec.priority if submission.priority is None else priority_of(submission.priority)
    attempts_max = submission.attempts_max
    if attempts_max is None:
        attempts_max = spec.attempts_max
    elif not 1 <= attempts_max <= ATTEMPTS_CAP:
        _refuse("attempts_max", f"be an integer from 1 to {ATTEMPTS_CAP}", attempts_max)
    key = submission.idempotency_key
    if key is not None and _IDEMPOTENCY_KEY.fullmatch(key) is None:
        _refuse(
            "idempotency_key",
            f"be 1 to {IDEMPOTENCY_KEY_LENGTH_MAX} printable ASCII characters without a space",
            key,
        )
    if submission.callback_url is not None:
        _check_callback(submission.callback_url, rules)
    metadata = b"" if submission.metadata is None else _metadata(submission.metadata)
    return Job(
        job_id,
        submission.task,
        bytes(submission.payload),
        now,
        run_at,
        priority,
        attempts_max,
        run_at + ttl_s,
        deadline_at,
        tenant,
        key,
        body_hash,
        metadata,
        version=spec.version,
        callback_url=submission.callback_url,
        ordering_key=None if submission.ordering_key is None else _ordering_key(submission.ordering_key),
    )


def body_hash(submission: Submission, payload: Any, digests: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """Return the hash by which "same key, other body" is told, of what counts in the body. The order of names
    does not matter, nor does the key itself; 1 and 1.0 differ. `digests` stand for the ids of blobs."""
    fields = {name: value for name in _HASHED if (value := getattr(submission, name)) is not None}
    fields["payload"] = payload
    text = _encode_canonical(fields)
    for blob_id, digest in digests:
        text = text.replace(blob_id, digest)
    return blake2b(text, digest_size=16).digest()


def with_fingerprint(job: Job, spec: TaskSpec) -> Job:
    """Return the job of a task that coalesces, so that equal ones find it: equal in tenant, task, version,
    payload (in any order of names; 1 and 1.0 differ), ordering key and callback. A job for later stays alone.
    """
    if job.run_at > job.created_at:
        return job
    same = [job.tenant, job.task, job.version, job.ordering_key, job.callback_url, _decode_any(job.payload)]
    fingerprint = blake2b(_encode_canonical(same), digest_size=16).digest()
    # Who wants to be told joins nothing that has ended: of that end nobody is told again.
    cache_s = spec.cache_s if job.callback_url is None else 0.0
    return job._replace(fingerprint=fingerprint, cache_s=cache_s)


def _decode_error(error: Exception, body: bytes) -> ForebayError:
    """Say what is wrong without echoing the body."""
    if isinstance(error, RecursionError):
        return too_deep()
    if isinstance(error, UnicodeDecodeError):
        return MalformedError(f"not UTF-8 (byte {error.start})")
    text = str(error)
    if not body.strip():
        return MalformedError("the body is empty")
    if body.startswith(b"\xef\xbb\xbf"):
        return MalformedError("JSON starts with a byte order mark: send it without")
    if not isinstance(error, msgspec.ValidationError):
        if _HALF_PAIR.search(body):  # the parser takes some for an early end
            return MalformedError("not JSON: a text holds half a character (a lone surrogate)")
        return MalformedError("the JSON ends too early" if "truncated" in text else _unquoted(text))
    if "out of range" in text:
        at = _AT.search(text)
        return MalformedError("a number is out of range", errors=((at[1] if at else "", "out of range"),))
    unknown = _UNKNOWN_FIELD.search(text)
    if unknown is not None:
        return InvalidError(
            f"unknown field{nearest(unknown[1], FIELDS)}", errors=((unknown[1], "is unknown"),)
        )
    at = _AT.search(text)
    rule = _AT.sub("", text).replace("`", "")
    missing = re.fullmatch(r"Object missing required field (\w+)", rule)
    if missing is not None:
        return InvalidError(f"{missing[1]} is missing", errors=((missing[1], "is missing"),))
    path = at[1] if at else ""
    kinds = re.fullmatch("Expected (.*), got (.*)", rule)
    rule = f"must be {kinds[1]}, not {kinds[2]}" if kinds else rule[:1].lower() + rule[1:]
    return InvalidError(f"{path or 'the body'}{' ' if kinds else ': '}{rule}", errors=((path, rule),))


def _unquoted(text: str) -> str:
    return text.replace("JSON is malformed", "not JSON") if text.startswith("JSON") else "not JSON: " + text


def _refuse(field: str, rule: str, *value: object) -> NoReturn:
    rule = f"must {rule}" + "".join(f", not {shown(one)}" for one in value)
    raise InvalidError(f"{field} {rule}", errors=((field, rule),))


def priority_of(value: int | str) -> int:
    """Return a priority as a number. Raises InvalidError."""
    if isinstance(value, str):
        named = PRIORITY_NAMES.get(value)
        if named is not None:
            return named
    elif 0 <= value <= PRIORITY_LEAST:
        return value
    rule = f"be high, normal, low or an integer from 0 (most urgent) to {PRIORITY_LEAST}"
    _refuse("priority", rule, value)


def _ordering_key(key: str) -> str:
    if not (1 <= len(key) <= ORDERING_KEY_LENGTH_MAX and key.isprintable()):
        _refuse("ordering_key", f"be 1 to {ORDERING_KEY_LENGTH_MAX} printable characters", key)
    return key


def _ttl_s(value: float | str) -> float:
    seconds = _duration("ttl", value)
    if seconds <= 0:
        _refuse("ttl", "be more than 0", value)
    if seconds > HORIZON_S:
        _refuse("ttl", f"be at most {HORIZON_S:.0f} seconds", value)
    return seconds


def _deadline_at(value: float | str | None, spec: TaskSpec, now: float) -> float | None:
    if value is None:
        return None if spec.deadline_s is None else now + spec.deadline_s
    if isinstance(value, str) and "-" in value:
        at = _instant("deadline", value, now)
    else:
        at = now + _duration("deadline", value)
    if at <= now:
        _refuse("deadline", "lie ahead", value)
    if at > now + HORIZON_S:
        _refuse("deadline", f"lie at most {HORIZON_S:.0f} seconds ahead", value)
    return at


def _instant(field: str, text: str, now: float) -> float:
    try:
        at = instant(text)
    except ValueError as error:
        _refuse(field, f"be {error}", text)
    if at > now + HORIZON_S:
        _refuse(field, f"lie at most {HORIZON_S:.0f} seconds ahead", text)
    return at


def _duration(field: str, value: float | str) -> float:
    try:
        return duration_s(value)
    except ValueError:
        _refuse(field, 'be a duration (seconds or a text like "250ms", "5m", "6h")', value)


def _check_callback(url: str, rules: CallbackRules) -> None:
    try:
        read_callback(url, rules)
    except ValueError as error:
        # Without the value: a URL may hold a password.
        rule = str(error)
        raise InvalidError(f"callback_url {rule}", errors=(("callback_url", rule),)) from None


def _metadata(entries: dict[str, str | int | float | bool | None]) -> bytes:
    if len(entries) > METADATA_ENTRIES_MAX:
        _refuse("metadata", f"have at most {METADATA_ENTRIES_MAX} entries", len(entries))
    for key, value in entries.items():
        if _METADATA_KEY.fullmatch(key) is None:
            _refuse("metadata", "have names of 1 to 64 of A-Z a-z 0-9 _ . -", key)
        if isinstance(value, str) and "\0" in value:
            _refuse(f"metadata.{key}", "not contain U+0000")
    text = msgspec.json.encode(entries) if entries else b""
    if len(text) > METADATA_BYTES_MAX:
        raise TooLargeError(f"metadata is larger than {METADATA_BYTES_MAX} bytes", limit=METADATA_BYTES_MAX)
    return text
