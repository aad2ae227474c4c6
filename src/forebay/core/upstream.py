"""UpstreamSpec, judged: a model server behind HTTP, and what each of its answers means for a job."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from forebay.core.breaker import Ending
from forebay.core.limiter import LimitPolicy
from forebay.core.saturation import SaturationSpec

BUSY_WAIT_S: Final = 1.0  # where a server that is busy does not say how long
RETRY_AFTER_MAX_S: Final = 300.0  # what a server says is believed up to here
DETAIL_LENGTH_MAX: Final = 200  # characters of its words in an error

# "Not now": every code that servers and their proxies use for it. What they mean besides differs.
BUSY_STATUSES: Final = frozenset({425, 429, 498, 503, 529})
# How common servers say it in a body, under other codes too: Triton, TorchServe, Ollama, TGI and TEI,
# hosted endpoints while a model loads.
BUSY_WORDS: Final = (
    "exceeds maximum queue size",
    "no worker is available",
    "server busy",
    "maximum pending requests",
    "model is overloaded",
    "currently loading",
)
# What a gRPC status means in HTTP. Proxies that speak JSON to us and gRPC to the model send it on, and a call
# that failed at once may come as 200 with nothing but this field.
HTTP_OF_GRPC: Final = {
    1: 500, 2: 500, 3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429, 9: 400, 10: 409, 11: 400, 12: 501,
    13: 500, 14: 503, 15: 500, 16: 401,
}  # fmt: skip
# About this server and its key, not about the payload: another try, later, may go well.
OPERATOR_STATUSES: Final = frozenset({401, 403, 407, 408, 409})
# A conflict may last, and what is busy is not charged, so 409 must say that it passes: by Retry-After, or in
# such words: Cog, which does one at a time, and servers that still work on the same Idempotency-Key.
PASSING_WORDS: Final = (
    "already running",
    "in progress",
    "being processed",
    "is outstanding",
    "shutting down",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSpec:
    """Where the calls go and what bounds each of them. Jobs have no say in any of it but the body."""

    url: str
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # keys may be among them
    limit: LimitPolicy = field(default_factory=LimitPolicy)
    connect_s: float = 5.0
    first_byte_s: float = 120.0  # from the request to the head of the answer
    idle_s: float = 60.0  # between two pieces of the answer
    answer_bytes_max: int = 1024 * 1024
    gate: SaturationSpec | None = None


class Kind(str, Enum):
    """What an answer, or none, comes to."""

    GOOD = "good"
    BUSY = "busy"  # not now: it comes again, uncharged
    FAILED = "failed"  # a failed attempt
    REFUSED = "refused"  # this payload can never succeed


class Judgement(NamedTuple):
    """What an answer means: for the job, for the breaker (`health`) and for the limit (`load`)."""

    kind: Kind
    health: Ending
    load: Ending
    code: str = ""
    message: str = ""
    after_s: float | None = None


GOOD: Final = Judgement(Kind.GOOD, Ending.GOOD, Ending.GOOD)


def judged(status: int, *, words: str = "", after_s: float | None = None) -> Judgement:
    """Return what a whole answer with this status means. `words`: what its body says is wrong; `after_s`:
    its Retry-After.

    Busy answers shrink the limit. 429 and 529 are about our rate and say nothing of health; 503 and other
    server errors do, and so do refused keys, as no job would succeed. Redirects are not followed.
    """
    if 200 <= status < 300:
        return GOOD
    told = f"it answered {status}" + (f": {clipped(words)}" if words else "")
    spoken = words.lower() if status >= 500 or status == 400 else ""
    busy = status in BUSY_STATUSES or any(phrase in spoken for phrase in BUSY_WORDS)
    if busy or (status == 409 and _passes(words, after_s)):
        health = Ending.BAD if status >= 500 and status != 529 else Ending.IGNORED
        wait_s = BUSY_WAIT_S if after_s is None else min(RETRY_AFTER_MAX_S, max(0.0, after_s))
        return Judgement(Kind.BUSY, health, Ending.BAD, "upstream_busy", told, wait_s)
    if status >= 500:
        load = Ending.BAD if status == 504 else Ending.IGNORED
        return Judgement(Kind.FAILED, Ending.BAD, load, "upstream_failed", told, after_s)
    if status < 400 or status in OPERATOR_STATUSES:
        told += "; redirects are not followed" if 300 <= status < 400 else ""
        return Judgement(Kind.FAILED, Ending.BAD, Ending.IGNORED, "upstream_failed", told, after_s)
    return Judgement(Kind.REFUSED, Ending.IGNORED, Ending.IGNORED, "upstream_refused", told)


def _passes(words: str, after_s: float | None) -> bool:
    return after_s is not None or any(phrase in words.lower() for phrase in PASSING_WORDS)


def status_of(status: int, grpc_status: str) -> int:
    """Return the HTTP status that counts: that of the gRPC status where the answer has one other than 0."""
    known = grpc_status.isascii() and grpc_status.isdigit() and len(grpc_status) <= 2
    return HTTP_OF_GRPC.get(int(grpc_status), status) if known else status


def away(why: str) -> Judgement:
    """Return what it means that no connection could be made: the job was never there."""
    told = f"it cannot be reached: {clipped(why)}"
    return Judgement(Kind.BUSY, Ending.BAD, Ending.IGNORED, "upstream_away", told, BUSY_WAIT_S)


def broken(why: str) -> Judgement:
    """Return what it means that the connection broke, or that what came is no HTTP."""
    return Judgement(Kind.FAILED, Ending.BAD, Ending.IGNORED, "upstream_broken", clipped(why))


def late(what: str, limit_s: float) -> Judgement:
    """Return what it means that something took too long."""
    told = f"{what} took longer than {limit_s:g} s"
    return Judgement(Kind.FAILED, Ending.BAD, Ending.BAD, "upstream_timeout", told)


def too_large(limit: int) -> Judgement:
    """Return what it means that an answer is longer than it may be: the next one would be too."""
    told = f"its answer is longer than {limit:,} bytes (answer_bytes_max)"
    return Judgement(Kind.REFUSED, Ending.GOOD, Ending.GOOD, "result_too_large", told)


def unreadable(why: str) -> Judgement:
    """Return what it means that a good answer cannot be a result."""
    told = f"its answer is no result: {clipped(why)}"
    return Judgement(Kind.FAILED, Ending.BAD, Ending.GOOD, "upstream_unreadable", told)


def clipped(text: str) -> str:
    """Return one printable line of DETAIL_LENGTH_MAX characters at most."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return line if len(line) <= DETAIL_LENGTH_MAX else line[: DETAIL_LENGTH_MAX - 1] + "…"
