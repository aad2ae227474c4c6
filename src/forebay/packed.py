"""How errors and attempts of a job become the bytes that engines keep, and back: one form for all of them."""

from typing import Final

import msgspec

from forebay.core.job import Attempt, JobError

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODE_ERROR: Final = msgspec.msgpack.Decoder(JobError)
_DECODE_ATTEMPTS: Final = msgspec.msgpack.Decoder(tuple[Attempt, ...])


def error_bytes(error: JobError | None) -> bytes | None:
    """Return the error column."""
    return None if error is None else _ENCODER.encode(error)


def error_of(column: bytes | None) -> JobError | None:
    """Return the error of an error column."""
    return None if column is None else _DECODE_ERROR.decode(column)


def attempts_bytes(attempts: tuple[Attempt, ...]) -> bytes | None:
    """Return the attempts column; None when there are none."""
    return _ENCODER.encode(attempts) if attempts else None


def attempts_of(column: bytes | None) -> tuple[Attempt, ...]:
    """Return the attempts of an attempts column."""
    return () if column is None else _DECODE_ATTEMPTS.decode(column)
