"""Job, Standing, Lease, Transition, Receipt: the records that travel; all immutable.

They are NamedTuples and not dataclasses because the embedded engine makes several of them per job at
tens of thousands of jobs a second: a frozen dataclass of this width costs four times as much to build.
"""

from enum import Enum
from typing import NamedTuple

from forebay.core.lifecycle import Event, State

PRIORITY_HIGH, PRIORITY_NORMAL, PRIORITY_LOW = 2, 5, 8
PRIORITY_LEAST = 9  # 0 is the most urgent

# One priority level is worth this much waiting. The order key `ready_at + priority * AGEING_S` never
# changes, so it can be an index, and it bounds starvation: a job waits behind later arrivals of a
# class k levels more urgent for at most k * AGEING_S.
AGEING_S = 60.0


class Job(NamedTuple):
    """What was accepted. Never changes after it was stored, but for what `Book.amend` changes."""

    id: str
    task: str
    payload: bytes  # JSON text as it was received
    created_at: float
    run_at: float  # first instant it may run; equals created_at unless scheduled
    priority: int = PRIORITY_NORMAL
    attempts_max: int = 3
    expires_at: float | None = None  # waiting ends here (ttl, counted from run_at); running may go on
    deadline_at: float | None = None  # nothing of it may run after this instant
    tenant: str = ""
    idempotency_key: str | None = None
    body_hash: bytes = b""  # of the whole submission, for "same key, other body"
    metadata: bytes = b""  # JSON object text, empty when there is none
    redriven_from: str | None = None
    version: str = ""  # of the task when it was accepted
    ordering_key: str | None = None  # jobs of one task, tenant and key run one at a time, in order
    callback_url: str | None = None  # told when it has ended
    # Of everything that makes two submissions the same work; None: nobody may join this one.
    fingerprint: bytes | None = None
    cache_s: float = 0.0  # how long after its success an equal submission is still answered with it

    @property
    def size(self) -> int:
        """Bytes this job counts for in every bound in bytes."""
        return len(self.payload) + len(self.metadata)

    @property
    def waits_until(self) -> float | None:
        """The instant from which it may not be granted any more: the earlier of ttl and deadline."""
        if self.expires_at is None:
            return self.deadline_at
        return self.expires_at if self.deadline_at is None else min(self.expires_at, self.deadline_at)


class JobError(NamedTuple):
    """Why an attempt or a job ended badly. `code` is for programs and stable, `message` for people."""

    code: str
    message: str
    type: str = ""  # name of the exception class, empty when there was none
    attempt: int = 0


class Attempt(NamedTuple):
    """One try that ended without success. Successful tries are told by the record itself."""

    attempt: int
    started_at: float
    ended_at: float
    outcome: Event
    worker: str
    error: JobError | None = None
    next_at: float | None = None  # the job waits until then before it is queued again
    log: str = ""  # the end of what its process printed meanwhile; bounded per job, see core.evidence
    mates: tuple[str, ...] = ()  # ids of jobs that ran in the same call or beside it; bounded


ATTEMPTS_KEPT = 20  # newest ended attempts kept per job; hand-backs would grow the list without bound


class Standing(NamedTuple):
    """Where a job stands now: everything about it that changes."""

    state: State
    attempt: int = 0  # charged grants so far
    fence: int = 0  # grows with every grant; a stale holder cannot write
    deaths: int = 0  # charged deaths of the process that ran it
    releases: int = 0  # uncharged hand-backs
    suspect: bool = False  # runs alone next
    cancel_requested: bool = False
    ready_at: float = 0.0  # when it became or becomes ready; part of the order key
    lease_until: float | None = None  # None unless running
    worker: str = ""  # of the last grant: the node, and when it has ended the replica that ran it
    started_at: float | None = None  # of the last grant
    finished_at: float | None = None
    output: bytes | None = None  # JSON text
    error: JobError | None = None
    progress: bytes | None = None  # JSON text {"share": 0.4, "message": "page 3"}; None unless running
    attempts: tuple[Attempt, ...] = ()
    checkpoint: bytes | None = None  # JSON text the handler stored; the next attempt gets it back
    degraded: int = 0  # of a result: how far below what was asked for it is, see core.degraded
    cancel_at: float | None = None  # when its end was asked for first; None unless running


class JobRecord(NamedTuple):
    """A job and where it stands."""

    job: Job
    standing: Standing
    redriven_as: str | None = None
    edited: bytes | None = None  # the payload that a redrive of a dead letter takes in place of its own
    spooled: bool = False  # it waits beside the engine, which is away and does not know of it


class Lease(NamedTuple):
    """The right of one worker to run one job until `until`, proven by `fence`."""

    job: Job
    fence: int
    attempt: int  # this try's number, 1 for the first; already charged
    until: float
    worker: str
    leased_at: float
    ready_at: float = 0.0  # its old place in line, for a hand-back
    deaths: int = 0
    releases: int = 0
    suspect: bool = False
    attempts: tuple[Attempt, ...] = ()
    cancel_requested: bool = False
    checkpoint: bytes | None = None  # of an earlier attempt
    request: bool = False  # of a request: no engine knows of it


class Claim(NamedTuple):
    """What a holder shows to renew: which job, under which fence, and what to store on the way."""

    job_id: str
    fence: int
    progress: bytes | None = None
    checkpoint: bytes | None = None  # kept over attempts until the job is final


class Hold(str, Enum):
    """The engine's answer to a renewal."""

    HELD = "held"
    LOST = "lost"  # lapsed, taken over or final: stop working on it
    CANCEL = "cancel"  # renewed, and somebody wants it cancelled


class Charge(NamedTuple):
    """What the end of an attempt says of its input (core.quarantine): one more death, or that it is none of
    its doing."""

    fingerprint: bytes
    condemns_at: int  # so many deaths condemn the input; 0: its deaths are forgotten, unless it is condemned


class Transition(NamedTuple):
    """A decided change of a leased job. Made in core/settle only; an engine stores it, all or nothing,
    while `fence` is current, and refuses it otherwise.
    """

    job_id: str
    fence: int
    event: Event
    state: State
    at: float
    attempt: int
    deaths: int = 0
    releases: int = 0
    suspect: bool = False
    ready_at: float = 0.0
    output: bytes | None = None
    error: JobError | None = None
    attempts: tuple[Attempt, ...] = ()
    worker: str = ""  # the replica that ran it, in place of the grant's worker; empty: nothing to add
    checkpoint: bytes | None = None  # the newest of the attempt; None keeps what is stored
    degraded: int = 0  # of a result, see core.degraded
    charge: Charge | None = None  # what it says of the input


class Settled(NamedTuple):
    """A transition that was stored, and the lease it ended."""

    lease: Lease
    transition: Transition

    def record(self) -> JobRecord:
        """Return the job as a reader finds it from now on."""
        lease, step = self
        standing = Standing(
            step.state,
            step.attempt,
            step.fence,
            step.deaths,
            step.releases,
            step.suspect,
            lease.cancel_requested,
            lease.ready_at,
            None,
            step.worker or lease.worker,
            lease.leased_at,
            step.at,
            step.output,
            step.error,
            None,
            step.attempts,
            None,
            step.degraded,
        )
        return JobRecord(lease.job, standing)


class Verdict(str, Enum):
    """What became of one submission."""

    STORED = "stored"
    REPLAYED = "replayed"  # the same job was there already; nothing was stored
    JOINED = "joined"  # a job with the same fingerprint does or did this work; nothing was stored
    SPOOLED = "spooled"  # stored beside the engine, which is away; it gets the job when it is back
    CONFLICT = "conflict"  # the id or the idempotency key is taken by another body; nothing was stored


class Receipt(NamedTuple):
    """The engine's answer for one submission, in order. `job_id` is of the stored or the existing job."""

    verdict: Verdict
    job_id: str
    state: State


class CancelVerdict(str, Enum):
    """The engine's answer to a cancel."""

    CANCELLED = "cancelled"  # it waited; it is final now
    REQUESTED = "requested"  # it runs; its holder will be told at the next renewal
    ALREADY = "already"  # it was cancelled before
    FINAL = "final"  # it ended otherwise
    UNKNOWN = "unknown"


class Amendment(NamedTuple):
    """What is to change of a waiting job; None stays as it is."""

    priority: int | None = None
    task: str | None = None
    version: str = ""  # of the new task


class AmendVerdict(str, Enum):
    """The engine's answer to an amendment."""

    AMENDED = "amended"
    RUNNING = "running"  # too late; nothing has changed
    FINAL = "final"  # it has ended; nothing has changed
    UNKNOWN = "unknown"


def amended(job: Job, change: Amendment) -> Job:
    """Return the job as it is after an amendment."""
    if change.priority is not None:
        job = job._replace(priority=change.priority)
    if change.task is not None and change.task != job.task:
        job = job._replace(task=change.task, version=change.version, fingerprint=None)
    return job


class Line(NamedTuple):
    """The jobs of one priority that may run now. Those behind an earlier one of their ordering key are not
    among them: they wait for something else."""

    priority: int
    queued: int
    oldest_at: float  # ready time of the one that has been ready longest


class Depth(NamedTuple):
    """How full one task's queue is, exact at one instant."""

    queued: int = 0  # ready now: what `depth` and inference_queue_length mean
    scheduled: int = 0
    retrying: int = 0
    running: int = 0
    bytes: int = 0  # of every open job
    oldest_at: float | None = None  # ready time of the oldest queued job
    paused: bool = False
    dead: int = 0  # dead letters not yet purged
    draining: bool = False  # takes no new submissions until it is resumed
    lines: tuple[Line, ...] = ()  # of each priority that has queued jobs, most urgent first

    @property
    def open(self) -> int:
        """Jobs that have not ended: what the bound in items counts."""
        return self.queued + self.scheduled + self.retrying + self.running


class Sweep(NamedTuple):
    """What time alone changed, and which leases lapsed and wait for a decision.

    Ids are named, not counted: whoever announces work must know which jobs became ready.
    """

    promoted: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    overdue: tuple[Lease, ...] = ()


class Query(NamedTuple):
    """A listing: newest first, `after` is the id the last page ended with."""

    limit: int = 50
    after: str | None = None
    task: str | None = None
    states: frozenset[State] | None = None
    tenant: str | None = None
    # All must match, top level only, compared as text: a string is itself, anything else its JSON text.
    metadata: tuple[tuple[str, str], ...] = ()
    window_max: int = 10_000  # rows looked at for one page; past it the page ends early with a cursor


class Page(NamedTuple):
    """One page of a listing. `next_after` is None on the last page."""

    records: tuple[JobRecord, ...]
    next_after: str | None
