"""Broker: the contract of an engine, the verbs of core.book.Book behind `async def`, and a doorbell.

Nothing reaches a caller, a reader or a listener before it is durable. An exception from a writing verb
means the outcome is unknown, never "not stored"; repeat with the same id or idempotency key.
Engines with `own_clock` use their server's time and ignore `now`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from forebay.core.fairness import Share
from forebay.core.job import (
    Amendment,
    AmendVerdict,
    CancelVerdict,
    Claim,
    Depth,
    Hold,
    Job,
    JobRecord,
    Lease,
    Page,
    Query,
    Receipt,
    Settled,
    Sweep,
    Transition,
)
from forebay.core.lifecycle import State
from forebay.core.retention import Retention
from forebay.core.tenant import Held
from forebay.core.turns import Order
from forebay.ports.crons import Crons
from forebay.ports.outbox import Outbox
from forebay.ports.quarantine import Quarantine


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can and cannot do, said aloud."""

    durable: bool  # an answered write survives kill -9 and power loss
    ordered: bool = True  # leases follow the order key exactly
    own_clock: bool = False  # ignores `now`
    shared: bool = False  # several processes may open it at once
    lost: str = ""  # of one that is not durable, where that is a matter of settings: what is lost, and why


class Change(NamedTuple):
    """One durable change of a job, as listeners hear it."""

    job_id: str
    task: str
    state: State
    settled: Settled | None = None  # how it ended, where its holder ended it and the engine has it at hand


class Load(NamedTuple):
    """How much one task holds, from memory, with what is still on its way to the disk."""

    open: int  # jobs that have not ended
    queued: int
    running: int
    bytes: int
    paused: bool = False  # no leases are granted
    draining: bool = False  # no submissions are taken


Doorbell = Callable[[str], None]  # called with a task name
Listener = Callable[[Sequence[Change]], None]  # called with what became durable


class Broker(Protocol):
    """A store of jobs shared by servers and nodes. Meaning of each verb: core.book.Book."""

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can and cannot do."""
        ...

    @property
    def outbox(self) -> Outbox:
        """The deliveries that callbacks are owed."""
        ...

    @property
    def crons(self) -> Crons:
        """What is remembered of cron entries."""
        ...

    @property
    def quarantine(self) -> Quarantine:
        """The inputs that killed workers."""
        ...

    def new_id(self, now: float) -> str:
        """Return an id for one new job."""
        ...

    # The three hot verbs are plain calls that return an awaitable: an engine that groups its commits can
    # take the operation in at once, so that a lease asked for by a doorbell joins the submit's commit.
    def enqueue(self, jobs: Sequence[Job], *, now: float) -> Awaitable[list[Receipt]]:
        """Store each job once, durably; answer in order."""
        ...

    def lease(
        self, task: str, *, limit: int, lease_s: float, worker: str, now: float
    ) -> Awaitable[list[Lease]]:
        """Grant up to `limit` ready jobs, most urgent first. Returns at once, maybe empty."""
        ...

    async def recall(self, jobs: Sequence[Job], *, now: float) -> list[Receipt | None]:
        """Return what `enqueue` would answer for each job whose idempotency key is known, else None; for
        who must refuse what is new."""
        ...

    async def extend(self, claims: Sequence[Claim], *, lease_s: float, now: float) -> list[Hold]:
        """Renew leases and store progress; answer in order."""
        ...

    def commit(self, transitions: Sequence[Transition], *, now: float) -> Awaitable[list[bool]]:
        """Apply transitions whose fence is current, durably; answer in order."""
        ...

    async def cancel(self, ids: Sequence[str], *, now: float) -> list[CancelVerdict]:
        """Cancel waiting jobs, ask the holders of running ones; answer in order."""
        ...

    async def sweep(self, *, limit: int, now: float) -> Sweep:
        """Do what time alone decides and return overdue leases."""
        ...

    async def get(self, job_id: str, *, now: float) -> JobRecord | None:
        """Return the job, or None when it is unknown or past its retention."""
        ...

    async def was_purged(self, job_id: str, *, tenant: str | None = None, now: float) -> bool:
        """Say whether the id was given out once and is past retention; with a tenant, if it was its."""
        ...

    async def find(self, query: Query, *, now: float) -> Page:
        """List jobs newest first."""
        ...

    async def depth(self, task: str, *, now: float) -> Depth:
        """Return how full one task's queue is."""
        ...

    def depth_now(self, task: str, *, now: float) -> Depth | None:
        """The same without IO, including writes still on their way to the disk; None when the engine
        cannot know."""
        ...

    def load_now(self, task: str, *, now: float) -> Load | None:
        """Return what admission asks on every submission; None when the engine cannot know without IO."""
        ...

    def holding_now(self, tenant: str, *, now: float) -> Held | None:
        """Return what a tenant holds over all tasks, with what is on its way to the disk; None when the
        engine cannot know without IO."""
        ...

    def place_now(self, job: Job, *, now: float) -> int | None:
        """Return the place in line that `enqueue` just gave a queued job, 1 is next, without IO; None when
        only `position` can tell. It moves on: the job may run already."""
        ...

    async def tasks(self) -> list[str]:
        """Return the names of tasks that have jobs, are paused or drain, sorted."""
        ...

    async def position(self, job_id: str, *, now: float) -> int | None:
        """Return the job's place in line, 1 is next; None when not queued."""
        ...

    async def pause(self, task: str, *, paused: bool, now: float) -> None:
        """Stop or resume granting leases of one task, durably."""
        ...

    async def drain(self, task: str, *, draining: bool, now: float) -> None:
        """Mark one task as taking no new submissions, or take the mark away, durably."""
        ...

    async def waits_for(self, job_id: str, *, now: float) -> str | None:
        """Return the id of the earlier job of the same ordering key that a waiting job waits for, or None."""
        ...

    async def amend(self, job_id: str, change: Amendment, *, now: float) -> AmendVerdict:
        """Give a waiting job another priority, or move it to another task, durably."""
        ...

    def set_shares(self, shares: Mapping[str, Share]) -> None:
        """Give tenants their weights and bounds, for all tasks. Not stored: said again after each opening.

        Raises ValueError with one line for a share that makes no sense; nothing has changed then.
        """
        ...

    def set_retention(self, by_task: Mapping[str, Retention]) -> None:
        """Keep the ended jobs of some tasks for another time than those of all; those not named have that of
        all. Holds for jobs that have ended too. Not stored: whoever opens a store says it again."""
        ...

    def set_reserve(self, task: str, others_max: int | None) -> None:
        """Keep room for urgent jobs: at most `others_max` jobs of the task that are less urgent than
        core.reserve.INTERACTIVE run at once; None for any number. Not stored."""
        ...

    async def set_order(self, task: str, order: Order) -> None:
        """Say what the order of a task's jobs goes by inside a priority. Not stored."""
        ...

    async def purge(self, ids: Sequence[str] | None = None, *, limit: int, now: float) -> int:
        """Remove final jobs: the named ones, or those past retention."""
        ...

    async def held(self, blobs: Sequence[str], *, now: float) -> list[bool]:
        """Say of each blob whether a stored job names it, in its payload, output or checkpoint."""
        ...

    async def scrub(self) -> None:
        """Leave nothing of what was removed in the files of the store. Slow: writing may stop meanwhile."""
        ...

    async def edit(self, job_id: str, payload: bytes, *, now: float) -> bool:
        """Keep a payload for the redrive of a dead job; False when there is no such dead job."""
        ...

    async def redrive(self, job_id: str, job: Job, *, now: float) -> Receipt | None:
        """Store `job` as the successor of the dead job `job_id`."""
        ...

    def on_work(self, doorbell: Doorbell) -> Callable[[], None]:
        """Register a doorbell; returns the way to remove it. May ring early, late or not at all.

        An exception of a doorbell or listener is swallowed: it cannot undo what is stored.
        """
        ...

    def on_cancel(self, doorbell: Doorbell) -> Callable[[], None]:
        """Register a bell that rings when a running job of a task was asked to end: its holder hears of it
        at its next renewal, and may renew at once. Returns the way to remove it. Best effort.
        """
        ...

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Register a listener of durable changes; returns the way to remove it. Best effort: a waiter
        also looks for itself now and then."""
        ...

    async def close(self) -> None:
        """Finish what was begun and let go of everything. Twice is harmless."""
        ...
