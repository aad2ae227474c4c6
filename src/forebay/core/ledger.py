"""Ledger: the reference store of jobs that every engine must equal; in memory, exact, deterministic."""

from collections.abc import Callable, Mapping, Sequence

from forebay.core import ledger_blobs, ledger_edits, ledger_order, settle
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
    Sweep,
    Transition,
    Verdict,
)
from forebay.core.ledger_audit import audit
from forebay.core.ledger_crons import LedgerCrons
from forebay.core.ledger_entry import Entry, page_of
from forebay.core.ledger_ids import CountedIds, PurgedIds
from forebay.core.ledger_outbox import LedgerOutbox
from forebay.core.ledger_shelf import Shelf
from forebay.core.ledger_twins import join
from forebay.core.lifecycle import FINAL, Event, State
from forebay.core.quarantine import QuarantineBook
from forebay.core.retention import Retention
from forebay.core.tenant import Held
from forebay.core.turns import Order, Turns


class Ledger:
    """A core.book.Book in memory. What each verb means stands there. The same calls give the same answers.

    Every verb costs O(log n) for each job it touches; `find` walks the ids.
    """

    def __init__(
        self,
        *,
        retention_s: float = 86_400.0,
        dead_s: float | None = None,
        new_id: Callable[[float], str] | None = None,
    ) -> None:
        self.accepted = 0  # jobs ever stored
        self.purged = 0  # jobs ever removed
        self._now = 0.0
        self._shelf = Shelf()
        self._shelf.keeping.of_all = Retention(retention_s, retention_s if dead_s is None else dead_s)
        self.outbox = LedgerOutbox(
            self._shelf.tray, tick=self._tick, knows=lambda job_id, now: self._seen(job_id, now) is not None
        )
        self.crons = LedgerCrons(tick=self._tick, store=lambda job, now: self.enqueue([job], now=now)[0])
        self.quarantine = QuarantineBook(tick=self._tick)
        self._purged_ids = PurgedIds()
        self._new_id = new_id or CountedIds()

    def new_id(self, now: float) -> str:
        """Return an id for one new job."""
        return self._new_id(self._tick(now))

    def enqueue(self, jobs: Sequence[Job], *, now: float) -> list[Receipt]:
        """Store each job once; answer in order."""
        now = self._tick(now)
        return [self._known(job) or self._join(job, now) or self._store(job, now) for job in jobs]

    def recall(self, jobs: Sequence[Job], *, now: float) -> list[Receipt | None]:
        """Return what `enqueue` would answer for each job whose key is known, else None."""
        self._tick(now)
        return [self._shelf.by_key(job) for job in jobs]

    def lease(self, task: str, *, limit: int, lease_s: float, worker: str, now: float) -> list[Lease]:
        """Grant up to `limit` ready jobs, most urgent first."""
        now = self._tick(now)
        queue = self._shelf.queues.get(task)
        granted: list[Lease] = []
        if queue is None or queue.paused or limit <= 0:
            return granted
        shelf, turns = self._shelf, Turns(queue.fair, queue.reserve, queue.places(), now)
        while len(granted) < limit and (place := turns.next()) is not None:
            key = place.line.order.pop_first()
            assert key is not None
            granted.append(shelf.grant(shelf.jobs[key[1]], worker, now, now + lease_s))
            turns.granted(place, key[1])
        return granted

    def extend(self, claims: Sequence[Claim], *, lease_s: float, now: float) -> list[Hold]:
        """Renew leases and store progress; answer in order."""
        now = self._tick(now)
        return [self._renew(claim, now, now + lease_s) for claim in claims]

    def commit(self, transitions: Sequence[Transition], *, now: float) -> list[bool]:
        """Apply each transition whose fence is current and whose job is running; answer in order."""
        self._tick(now)
        return [self._apply(transition) for transition in transitions]

    def cancel(self, ids: Sequence[str], *, now: float) -> list[CancelVerdict]:
        """Cancel waiting jobs at once and ask the holders of running ones; answer in order."""
        now = self._tick(now)
        return [self._cancel(job_id, now) for job_id in ids]

    def sweep(self, *, limit: int, now: float) -> Sweep:
        """Do what time alone decides, at most `limit` jobs of each kind."""
        now = self._tick(now)
        shelf, expired, promoted = self._shelf, list[str](), list[str]()
        while len(expired) < limit and (key := shelf.ends.first()) is not None and key[0] <= now:
            entry = shelf.jobs[key[1]]
            self._shelf.end_waiting(entry, settle.waiting_end(entry.job), now)
            expired.append(key[1])
        while len(promoted) < limit and (key := shelf.due.first()) is not None and key[0] <= now:
            shelf.promote(shelf.jobs[key[1]])
            promoted.append(key[1])
        overdue = shelf.leases.until(now, limit)
        leases = tuple(shelf.jobs[job_id].lease() for _, job_id in overdue)
        return Sweep(tuple(promoted), tuple(expired), leases)

    def get(self, job_id: str, *, now: float) -> JobRecord | None:
        """Return the job, or None when it is unknown or past its retention."""
        entry = self._seen(job_id, self._tick(now))
        return None if entry is None else entry.record()

    def was_purged(self, job_id: str, *, tenant: str | None = None, now: float) -> bool:
        """Say whether the id was stored once and is past retention; of those in PurgedIds that are gone."""
        entry = self._shelf.jobs.get(job_id)
        whose = self._purged_ids.get(job_id) if entry is None else entry.job.tenant
        gone = whose is not None and self._seen(job_id, self._tick(now)) is None
        return gone and tenant in (None, whose)

    def find(self, query: Query, *, now: float) -> Page:
        """List jobs newest first."""
        now = self._tick(now)
        ids = self._shelf.ids.descending(query.after)
        return page_of(query, ((job_id, self._seen(job_id, now)) for job_id in ids))

    def depth(self, task: str, *, now: float) -> Depth:
        """Return how full one task's queue is."""
        self._tick(now)
        queue = self._shelf.queues.get(task)
        return Depth() if queue is None else queue.depth()

    def holding(self, tenant: str, *, now: float) -> Held:
        """Return the open jobs of one tenant and their bytes."""
        return self._shelf.held.get(tenant, Held())

    def tasks(self) -> list[str]:
        """Return the names of tasks that have jobs, are paused or drain, sorted."""
        return sorted(self._shelf.queues)

    def position(self, job_id: str, *, now: float) -> int | None:
        """Return the job's place among the queued jobs of its task, 1 is next; None when not queued."""
        self._tick(now)
        return ledger_order.position(self._shelf, job_id)

    def waits_for(self, job_id: str, *, now: float) -> str | None:
        """Return the id of the job of the same ordering key that this one waits for, None without one."""
        self._tick(now)
        return ledger_order.waits_for(self._shelf, job_id)

    def amend(self, job_id: str, change: Amendment, *, now: float) -> AmendVerdict:
        """Give a waiting job another priority, or move it to another task."""
        entry = self._seen(job_id, self._tick(now))
        return AmendVerdict.UNKNOWN if entry is None else ledger_order.amend(self._shelf, entry, change)

    def set_shares(self, shares: Mapping[str, Share]) -> None:
        """Give tenants their weights and bounds; those not named have weight 1 and no bound."""
        ledger_order.set_shares(self._shelf, shares)

    def set_retention(self, by_task: Mapping[str, Retention]) -> None:
        """Keep the ended jobs of some tasks for another time than those of all."""
        ledger_order.set_retention(self._shelf, by_task)

    def set_reserve(self, task: str, others_max: int | None) -> None:
        """Keep room for urgent jobs of a task: at most so many others of it run at once."""
        ledger_order.set_reserve(self._shelf, task, others_max)

    def set_order(self, task: str, order: Order) -> None:
        """Say what the order of a task's jobs goes by inside a priority."""
        ledger_order.set_order(self._shelf, task, order)

    def freed(self) -> set[str]:
        """Return the tasks that a job became grantable of since the last call."""
        return ledger_order.take_freed(self._shelf)

    def pause(self, task: str, *, paused: bool, now: float) -> None:
        """Stop or resume granting leases of one task."""
        self._tick(now)
        queue = self._shelf.queue(task)
        queue.paused = paused
        self._shelf.drop_queue_if_empty(queue)

    def drain(self, task: str, *, draining: bool, now: float) -> None:
        """Mark one task as taking no new submissions, or take the mark away."""
        self._tick(now)
        queue = self._shelf.queue(task)
        queue.draining = draining
        self._shelf.drop_queue_if_empty(queue)

    def purge(self, ids: Sequence[str] | None = None, *, limit: int, now: float) -> int:
        """Remove final jobs: the named ones, or up to `limit` past retention, longest past first."""
        now = self._tick(now)
        if ids is None:
            ids = [job_id for _, job_id in self._shelf.finals.until(now, limit)]
            self.quarantine.age_out(now=now)
        return sum(self._purge(job_id) for job_id in ids)

    def held(self, blobs: Sequence[str], *, now: float) -> list[bool]:
        """Say of each blob whether a stored job names it."""
        self._tick(now)
        return [blob in self._shelf.blobs for blob in blobs]

    def edit(self, job_id: str, payload: bytes, *, now: float) -> bool:
        """Keep a payload beside that of a dead job."""
        dead = self._seen(job_id, self._tick(now))
        return dead is not None and ledger_edits.edit(self._shelf, dead, payload)

    def redrive(self, job_id: str, job: Job, *, now: float) -> Receipt | None:
        """Store `job` as the successor of the dead job `job_id`."""
        now = self._tick(now)
        dead = self._seen(job_id, now)
        if dead is None or dead.state is not State.DEAD:
            return None
        successor = None if dead.redriven_as is None else self._shelf.jobs.get(dead.redriven_as)
        if successor is not None:
            return Receipt(Verdict.REPLAYED, successor.job.id, successor.state)
        known = self._known(job)
        if known is not None:
            return known
        dead.redriven_as = job.id
        return self._store(job._replace(redriven_from=job_id), now)

    def recover(self, *, now: float) -> int:
        """End every lease that is not over yet at `now`; return how many. What an engine that is owned by
        one process does when it opens its store: the holders are gone with the process before it.
        """
        now = self._tick(now)
        self._shelf.tray.recover(now)
        ledger_order.forget_service(self._shelf)
        return self._shelf.end_leases(now)

    def states(self, ids: Sequence[str]) -> list[tuple[str, str, State]]:
        """Return (id, task, state) of those of the jobs that are there; cheaper than `get`."""
        found = (self._shelf.jobs.get(job_id) for job_id in ids)
        return [(entry.job.id, entry.job.task, entry.state) for entry in found if entry is not None]

    def audit(self) -> list[str]:
        """Check every count and index against the jobs, in O(n log n); return a sentence for each problem."""
        return audit(self._shelf, accepted=self.accepted, purged=self.purged) + self._shelf.tray.audit()

    def _tick(self, now: float) -> float:
        if now > self._now:  # max() costs three times as much, and every verb pays it
            self._now = now
        return self._now

    def _seen(self, job_id: str, now: float) -> Entry | None:
        entry = self._shelf.jobs.get(job_id)
        return None if entry is None or entry.gone_at <= now else entry

    def _known(self, job: Job) -> Receipt | None:
        known = self._shelf.by_key(job)
        if known is not None:
            return known
        entry = self._shelf.jobs.get(job.id)
        return None if entry is None else self._shelf.receipt(entry, job)

    def _join(self, job: Job, now: float) -> Receipt | None:
        return join(self._shelf, job, seen=lambda job_id: self._seen(job_id, now), now=now)

    def _store(self, job: Job, now: float) -> Receipt:
        state = State.SCHEDULED if job.run_at > now else State.QUEUED
        self._shelf.add(Entry(job, self._shelf.queue(job.task), state))
        self._purged_ids.discard(job.id)
        self.accepted += 1
        return Receipt(Verdict.STORED, job.id, state)

    def _renew(self, claim: Claim, now: float, until: float) -> Hold:
        entry = self._holding(claim.job_id, claim.fence)
        if entry is None or entry.lease_until is None or entry.lease_until <= now:
            return Hold.LOST
        self._shelf.renew(entry, until)
        if claim.progress is not None:
            entry.progress = claim.progress
        if claim.checkpoint is not None:
            ledger_blobs.keep_checkpoint(self._shelf.blobs, entry, claim.checkpoint)
        return Hold.CANCEL if entry.cancel_requested else Hold.HELD

    def _holding(self, job_id: str, fence: int) -> Entry | None:
        entry = self._shelf.jobs.get(job_id)
        if entry is None or entry.state is not State.RUNNING or entry.fence != fence:
            return None
        return entry

    def _apply(self, transition: Transition) -> bool:
        entry = self._holding(transition.job_id, transition.fence)
        if entry is None:
            return False
        if entry.cancel_requested:
            transition = settle.cancelled_instead(transition, entry.lease())
        self._shelf.settle(entry, transition)
        self.quarantine.charge(entry.job, transition)
        return True

    def _cancel(self, job_id: str, now: float) -> CancelVerdict:
        entry = self._seen(job_id, now)
        if entry is None:
            return CancelVerdict.UNKNOWN
        if entry.state in FINAL:
            return CancelVerdict.ALREADY if entry.state is State.CANCELLED else CancelVerdict.FINAL
        entry.cancel_requested = True
        if entry.state is State.RUNNING:
            entry.cancel_at = now if entry.cancel_at is None else entry.cancel_at
            return CancelVerdict.REQUESTED
        self._shelf.end_waiting(entry, Event.CANCELLED, now)
        return CancelVerdict.CANCELLED

    def _purge(self, job_id: str) -> bool:
        entry = self._shelf.jobs.get(job_id)
        if entry is None or entry.state not in FINAL:
            return False
        self._shelf.discard(entry)
        self.purged += 1
        self._purged_ids.add(job_id, entry.job.tenant)
        return True
