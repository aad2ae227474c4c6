"""MemoryBroker: the Ledger behind `async def`; fast and exact, and gone with the process."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from forebay.core.crons import CronMark
from forebay.core.fairness import Share
from forebay.core.job import (
    Amendment,
    AmendVerdict,
    CancelVerdict,
    Charge,
    Claim,
    Depth,
    Hold,
    Job,
    JobRecord,
    Lease,
    Page,
    Query,
    Receipt,
    Sweep,
    Transition,
    Verdict,
)
from forebay.core.ledger import Ledger
from forebay.core.lifecycle import State
from forebay.core.outbox import Delivery, DeliveryStep
from forebay.core.quarantine import DeadlyInput
from forebay.core.retention import Retention
from forebay.core.tenant import Held
from forebay.core.turns import Order
from forebay.errors import StoreUnavailableError
from forebay.ports.broker import Capabilities, Change, Doorbell, Listener, Load


class MemoryBroker:
    """A ports.broker.Broker for one process and one event loop. Nothing survives it.

    Every verb runs in one step without waiting, so calls never interleave.
    """

    capabilities = Capabilities(durable=False)

    def __init__(
        self, *, retention_s: float = 86_400.0, dead_s: float | None = None, ledger: Ledger | None = None
    ) -> None:
        self._ledger = ledger or Ledger(retention_s=retention_s, dead_s=dead_s)
        self._doorbells: dict[object, Doorbell] = {}
        self._cancel_bells: dict[object, Doorbell] = {}
        self._listeners: dict[object, Listener] = {}
        self._closed = False
        self.outbox = MemoryOutbox(lambda: self._book)
        self.crons = MemoryCrons(lambda: self._book, self._tell)
        self.quarantine = MemoryQuarantine(lambda: self._book)

    def new_id(self, now: float) -> str:
        """Return an id for one new job."""
        return self._ledger.new_id(now)

    async def enqueue(self, jobs: Sequence[Job], *, now: float) -> list[Receipt]:
        """Store each job once; answer in order."""
        receipts = self._book.enqueue(jobs, now=now)
        stored = [r for r in receipts if r.verdict is Verdict.STORED]
        self._tell([r.job_id for r in stored])
        return receipts

    async def recall(self, jobs: Sequence[Job], *, now: float) -> list[Receipt | None]:
        """Return what `enqueue` would answer for each job whose key is known, else None."""
        return self._book.recall(jobs, now=now)

    async def lease(self, task: str, *, limit: int, lease_s: float, worker: str, now: float) -> list[Lease]:
        """Grant up to `limit` ready jobs, most urgent first."""
        leases = self._book.lease(task, limit=limit, lease_s=lease_s, worker=worker, now=now)
        if self._listeners:
            self._hear([Change(lease.job.id, task, State.RUNNING) for lease in leases])
        return leases

    async def extend(self, claims: Sequence[Claim], *, lease_s: float, now: float) -> list[Hold]:
        """Renew leases and store progress; answer in order."""
        return self._book.extend(claims, lease_s=lease_s, now=now)

    async def commit(self, transitions: Sequence[Transition], *, now: float) -> list[bool]:
        """Apply transitions whose fence is current; answer in order."""
        applied = self._book.commit(transitions, now=now)
        self._tell([t.job_id for t, done in zip(transitions, applied, strict=True) if done])
        self.outbox.ring()
        return applied

    async def cancel(self, ids: Sequence[str], *, now: float) -> list[CancelVerdict]:
        """Cancel waiting jobs, ask the holders of running ones; answer in order."""
        verdicts = self._book.cancel(ids, now=now)
        ended = [i for i, v in zip(ids, verdicts, strict=True) if v is CancelVerdict.CANCELLED]
        self._tell(ended)
        self.outbox.ring()
        asked = [i for i, v in zip(ids, verdicts, strict=True) if v is CancelVerdict.REQUESTED]
        if asked and self._cancel_bells:
            for task in {task for _, task, _ in self._ledger.states(asked)}:
                for doorbell in list(self._cancel_bells.values()):
                    with suppress(Exception):
                        doorbell(task)
        return verdicts

    async def sweep(self, *, limit: int, now: float) -> Sweep:
        """Do what time alone decides and return overdue leases."""
        swept = self._book.sweep(limit=limit, now=now)
        self._tell([*swept.expired, *swept.promoted])
        self.outbox.ring()
        return swept

    async def get(self, job_id: str, *, now: float) -> JobRecord | None:
        """Return the job, or None when it is unknown or past its retention."""
        return self._book.get(job_id, now=now)

    async def was_purged(self, job_id: str, *, tenant: str | None = None, now: float) -> bool:
        """Say whether the id was stored once and is past retention; with a tenant, if it was its."""
        return self._book.was_purged(job_id, tenant=tenant, now=now)

    async def find(self, query: Query, *, now: float) -> Page:
        """List jobs newest first."""
        return self._book.find(query, now=now)

    async def depth(self, task: str, *, now: float) -> Depth:
        """Return how full one task's queue is."""
        return self._book.depth(task, now=now)

    def depth_now(self, task: str, *, now: float) -> Depth:
        """Return the same at once; never None here."""
        return self._book.depth(task, now=now)

    def load_now(self, task: str, *, now: float) -> Load:
        """Return what admission asks on every submission."""
        depth = self._book.depth(task, now=now)
        return Load(depth.open, depth.queued, depth.running, depth.bytes, depth.paused, depth.draining)

    def holding_now(self, tenant: str, *, now: float) -> Held:
        """Return what a tenant holds."""
        return self._book.holding(tenant, now=now)

    def place_now(self, job: Job, *, now: float) -> int | None:
        """Return the place in line of a job that was just stored."""
        return self._book.position(job.id, now=now)

    async def tasks(self) -> list[str]:
        """Return the names of tasks that have jobs, are paused or drain, sorted."""
        return self._book.tasks()

    async def position(self, job_id: str, *, now: float) -> int | None:
        """Return the job's place in line, 1 is next; None when not queued."""
        return self._book.position(job_id, now=now)

    async def pause(self, task: str, *, paused: bool, now: float) -> None:
        """Stop or resume granting leases of one task."""
        self._book.pause(task, paused=paused, now=now)
        if not paused:
            self._ring({task})

    async def drain(self, task: str, *, draining: bool, now: float) -> None:
        """Mark one task as taking no new submissions, or take the mark away."""
        self._book.drain(task, draining=draining, now=now)

    async def amend(self, job_id: str, change: Amendment, *, now: float) -> AmendVerdict:
        """Give a waiting job another priority or task."""
        verdict = self._book.amend(job_id, change, now=now)
        if verdict is AmendVerdict.AMENDED:
            self._tell([job_id])
        return verdict

    async def waits_for(self, job_id: str, *, now: float) -> str | None:
        """Return the id of the job of the same ordering key that this one waits for, or None."""
        return self._book.waits_for(job_id, now=now)

    def set_shares(self, shares: Mapping[str, Share]) -> None:
        """Give tenants their weights and bounds. Raises ValueError for a share that makes no sense."""
        self._book.set_shares(shares)
        self._ring(self._ledger.freed())

    def set_retention(self, by_task: Mapping[str, Retention]) -> None:
        """Keep the ended jobs of some tasks for another time than those of all."""
        self._book.set_retention(by_task)

    def set_reserve(self, task: str, others_max: int | None) -> None:
        """Keep room for urgent jobs of a task: at most so many others of it run at once."""
        self._book.set_reserve(task, others_max)
        self._ring(self._ledger.freed())

    async def set_order(self, task: str, order: Order) -> None:
        """Say what the order of a task's jobs goes by inside a priority."""
        self._book.set_order(task, order)

    async def purge(self, ids: Sequence[str] | None = None, *, limit: int, now: float) -> int:
        """Remove final jobs: the named ones, or those past retention."""
        return self._book.purge(ids, limit=limit, now=now)

    async def held(self, blobs: Sequence[str], *, now: float) -> list[bool]:
        """Say of each blob whether a stored job names it."""
        return self._book.held(blobs, now=now)

    async def scrub(self) -> None:
        """Do nothing: there is no file."""

    async def edit(self, job_id: str, payload: bytes, *, now: float) -> bool:
        """Keep a payload for the redrive of a dead job."""
        return self._book.edit(job_id, payload, now=now)

    async def redrive(self, job_id: str, job: Job, *, now: float) -> Receipt | None:
        """Store `job` as the successor of the dead job `job_id`."""
        receipt = self._book.redrive(job_id, job, now=now)
        if receipt is not None and receipt.verdict is Verdict.STORED:
            self._tell([receipt.job_id])
        return receipt

    def on_work(self, doorbell: Doorbell) -> Callable[[], None]:
        """Register a doorbell; returns the way to remove it."""
        token = object()
        self._doorbells[token] = doorbell
        return lambda: _drop(self._doorbells, token)

    def on_cancel(self, doorbell: Doorbell) -> Callable[[], None]:
        """Register a bell for cancels of running jobs; returns the way to remove it."""
        token = object()
        self._cancel_bells[token] = doorbell
        return lambda: self._cancel_bells.pop(token, None) and None

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Register a listener of changes; returns the way to remove it."""
        token = object()
        self._listeners[token] = listener
        return lambda: _drop(self._listeners, token)

    async def close(self) -> None:
        """Refuse every later verb. Twice is harmless."""
        self._closed = True
        self.outbox.clear()
        self._doorbells.clear()
        self._listeners.clear()

    @property
    def _book(self) -> Ledger:
        if self._closed:
            raise StoreUnavailableError("the store is closed")
        return self._ledger

    def _tell(self, ids: Sequence[str]) -> None:
        """Ring for what became ready, and tell the listeners what changed."""
        freed = self._ledger.freed()
        if freed:
            self._ring(freed)
        if not ids or not (self._doorbells or self._listeners):
            return
        states = self._ledger.states(ids)
        self._ring({task for _, task, state in states if state is State.QUEUED})
        if self._listeners:
            self._hear([Change(*known) for known in states])

    def _ring(self, tasks: set[str]) -> None:
        # What happened has happened: a bell or listener that fails must not look like a failed write.
        for task in tasks:
            for doorbell in list(self._doorbells.values()):
                with suppress(Exception):
                    doorbell(task)

    def _hear(self, changes: Sequence[Change]) -> None:
        if changes:
            for listener in list(self._listeners.values()):
                with suppress(Exception):
                    listener(changes)


class MemoryCrons:
    """A ports.crons.Crons of a MemoryBroker."""

    def __init__(self, book: Callable[[], Ledger], tell: Callable[[Sequence[str]], None]) -> None:
        self._book = book  # raises when closed
        self._tell = tell

    async def marks(self) -> list[CronMark]:
        """Return what is known of every entry ever seen, by name."""
        return self._book().crons.marks()

    async def fire(
        self, name: str, due_at: float, job: Job | None, *, when: str, skipped: str = "", now: float
    ) -> Receipt | None:
        """Store the job of a due instant and move the mark."""
        receipt = self._book().crons.fire(name, due_at, job, when=when, skipped=skipped, now=now)
        if receipt is not None and receipt.verdict is Verdict.STORED:
            self._tell([receipt.job_id])
        return receipt

    async def forget(self, names: Sequence[str], *, now: float) -> int:
        """Remove the marks of entries; return how many there were."""
        return self._book().crons.forget(names, now=now)

    async def steer(self, name: str, *, paused: bool, now: float) -> CronMark:
        """Pause an entry or let it go on, and return its mark."""
        return self._book().crons.steer(name, paused=paused, now=now)


class MemoryOutbox:
    """A ports.outbox.Outbox of a MemoryBroker."""

    def __init__(self, book: Callable[[], Ledger]) -> None:
        self._book = book  # raises when closed
        self._bells: dict[object, Callable[[], None]] = {}

    async def claim(
        self, *, limit: int, each_max: int, rooms: Mapping[str, int], lease_s: float, now: float
    ) -> list[Delivery]:
        """Claim due deliveries, earliest due first, of each endpoint no more than it has room for."""
        outbox = self._book().outbox
        return outbox.claim(limit=limit, each_max=each_max, rooms=rooms, lease_s=lease_s, now=now)

    async def settle(self, steps: Sequence[DeliveryStep], *, now: float) -> list[bool]:
        """Store what became of tries whose claim is the newest; answer in order."""
        return self._book().outbox.settle(steps, now=now)

    async def get(self, job_id: str, *, now: float) -> Delivery | None:
        """Return the delivery of a job, or None."""
        return self._book().outbox.get(job_id, now=now)

    async def replay(self, job_id: str, *, now: float) -> Delivery | None:
        """Make a delivery due now, counting from anew."""
        row = self._book().outbox.replay(job_id, now=now)
        self._book().outbox.tray.fresh = True
        self.ring()
        return row

    def due_at(self) -> float | None:
        """Return the earliest instant at which something is due."""
        return self._book().outbox.due_at()

    def on_owed(self, bell: Callable[[], None]) -> Callable[[], None]:
        """Register a bell; returns the way to remove it."""
        token = object()
        self._bells[token] = bell
        return lambda: self._bells.pop(token, None) and None

    def ring(self) -> None:
        """Ring when something new is owed."""
        tray = self._book().outbox.tray
        if tray.fresh:
            tray.fresh = False
            for bell in list(self._bells.values()):
                with suppress(Exception):
                    bell()

    def clear(self) -> None:
        """Forget every bell."""
        self._bells.clear()


class MemoryQuarantine:
    """A ports.quarantine.Quarantine of a MemoryBroker."""

    def __init__(self, book: Callable[[], Ledger]) -> None:
        self._book = book  # raises when closed

    def counts(self) -> Mapping[str, int]:
        """Return how many inputs of which task are in quarantine."""
        return self._book().quarantine.counts()

    def find(self, task: str, fingerprint: bytes, *, now: float) -> DeadlyInput | None:
        """Return an input that is in quarantine, by its hash."""
        return self._book().quarantine.find(task, fingerprint, now=now)

    def held(self, job: Job, *, now: float) -> DeadlyInput | None:
        """Return the input of this job when it is in quarantine."""
        return self._book().quarantine.held(job, now=now)

    async def charge_input(self, job: Job, charge: Charge, *, at: float) -> None:
        """Count what the end of a request says of its input."""
        self._book().quarantine.charge_input(job, charge, at=at)

    async def listed(
        self,
        *,
        limit: int,
        now: float,
        tenant: str | None = None,
        task: str | None = None,
        after: bytes = b"",
    ) -> list[DeadlyInput]:
        """Return up to `limit` inputs in quarantine, in the order of their hashes."""
        return self._book().quarantine.listed(limit=limit, now=now, tenant=tenant, task=task, after=after)

    async def release(self, fingerprint: bytes, *, tenant: str | None, now: float) -> DeadlyInput | None:
        """Forget the deaths of an input; return what it was."""
        return self._book().quarantine.release(fingerprint, tenant=tenant, now=now)

    async def forget(self, *, tenant: str | None = None, job_ids: Iterable[str] = ()) -> int:
        """Forget the inputs of a tenant, and those of these jobs."""
        return self._book().quarantine.forget(tenant=tenant, job_ids=job_ids)


def _drop(held: dict[object, Doorbell] | dict[object, Listener], token: object) -> None:
    held.pop(token, None)


class MemoryTrial:
    """The reference as the checks of the contract get it."""

    capabilities = MemoryBroker.capabilities
    reopen = None

    def __init__(self, *, retention_s: float) -> None:
        self._retention_s = retention_s

    async def open(self) -> MemoryBroker:
        """Return it, empty."""
        return MemoryBroker(retention_s=self._retention_s)

    async def remove(self) -> None:
        """Nothing is kept anywhere."""
