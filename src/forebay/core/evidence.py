"""Evidence: what a failed attempt leaves for people: its class, its company, what was printed meanwhile."""

from collections.abc import Iterable
from enum import Enum
from typing import Final

from forebay.core.job import Attempt, Job, Lease, Standing, Transition

LOG_KEPT_B: Final = 4_096  # of what was printed, per job, over all its attempts
MATES_KEPT: Final = 32  # ids per attempt


class Cause(str, Enum):
    """Why a dead letter is dead, in one of four words."""

    TRANSIENT = "transient"  # its tries are used up by failures that another try may not have
    PERMANENT = "permanent"  # no try can succeed: the handler said so, or what went in or came out is wrong
    RESOURCE = "resource"  # it took more memory, time or room than it may have
    POISON = "poison"  # the process that ran it alone died of it


_PERMANENT_CODES: Final = frozenset(
    {"invalid_payload", "invalid_result", "result_not_json", "wrong_output_count", "sealed", "blob_missing"}
)
_RESOURCE_CODES: Final = frozenset({"timeout", "result_too_large", "too_many_parts", "result_not_stored"})
_RESOURCE_TYPES: Final = frozenset({"MemoryError", "OutOfMemoryError"})
_OUT_OF_MEMORY: Final = "oom"  # the type of a worker_lost


def cause_of(job: Job, standing: Standing) -> Cause:
    """Return the class of a dead letter's last error, from its code, its type and what was charged."""
    error = standing.error
    if error is None or error.code == "released_too_often":
        return Cause.TRANSIENT
    if error.code == "quarantined":
        return Cause.POISON
    if error.code == "worker_lost":
        if error.type == _OUT_OF_MEMORY:
            return Cause.RESOURCE
        return Cause.POISON if standing.deaths else Cause.TRANSIENT
    if error.code in _RESOURCE_CODES or error.type.rpartition(".")[2] in _RESOURCE_TYPES:
        return Cause.RESOURCE
    if error.code in _PERMANENT_CODES or error.type == "Permanent" or standing.attempt < job.attempts_max:
        return Cause.PERMANENT
    return Cause.TRANSIENT


def log_for(log: str, job: Job, *, tenants: Iterable[str], mixed: bool) -> str:
    """Return what may be kept with a job of what its process printed: nothing that may be of another tenant.

    `tenants` are of all that was with that process meanwhile; `mixed`: items ran beside each other there, so
    that nobody can say when others began, and the log is kept where there are no tenants only.
    """
    if mixed and job.tenant:
        return ""
    return log if all(tenant == job.tenant for tenant in tenants) else ""


def witnessed(transition: Transition, *, log: str, mates: Iterable[str]) -> Transition:
    """Return the transition with the evidence in the attempt that it ends, and no more than the bounds."""
    if not transition.attempts:
        return transition
    *earlier, last = transition.attempts
    kept = tuple(mate for mate in mates if mate != transition.job_id)[:MATES_KEPT]
    log = _newest(log, LOG_KEPT_B)
    if not log and not kept:
        return transition
    left_b = LOG_KEPT_B - len(log.encode())
    shortened: list[Attempt] = []
    for attempt in reversed(earlier):
        old = _newest(attempt.log, left_b) if attempt.log else ""
        left_b -= len(old.encode())
        shortened.append(attempt if old == attempt.log else attempt._replace(log=old))
    return transition._replace(attempts=(*reversed(shortened), last._replace(log=log, mates=kept)))


def forgotten(lease: Lease) -> tuple[Attempt, ...]:
    """Return the earlier attempts of a job that succeeded, without their evidence: nobody will need it."""
    return tuple(attempt._replace(log="", mates=()) for attempt in lease.attempts)


def _newest(log: str, bytes_max: int) -> str:
    """Return the end of a text, from the start of a line where that fits, no longer than `bytes_max`."""
    raw = log.encode(errors="replace")
    if len(raw) <= bytes_max:
        return log
    if bytes_max <= 0:
        return ""
    cut = raw[-bytes_max:].decode(errors="ignore")
    _, found, whole = cut.partition("\n")
    return whole if found and whole else cut
