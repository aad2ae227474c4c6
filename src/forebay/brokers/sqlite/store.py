"""SqlBook: the synchronous verbs of core.book.Book over one SQLite connection."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import apsw

from forebay.brokers.sqlite import recovery, schema
from forebay.brokers.sqlite.amends import Amends
from forebay.brokers.sqlite.deliveries import SqlOutbox
from forebay.brokers.sqlite.endings import Endings
from forebay.brokers.sqlite.grants import Grants
from forebay.brokers.sqlite.intake import Intake
from forebay.brokers.sqlite.marks import SqlCrons
from forebay.brokers.sqlite.reads import Reads
from forebay.brokers.sqlite.shelf import Shelf
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
)
from forebay.core.quarantine import Change, QuarantineBook
from forebay.core.reserve import Reserve
from forebay.core.retention import Retention
from forebay.core.tenant import Held
from forebay.core.turns import Order

RETENTION_S: Final = 86_400.0
CACHE_BYTES_MAX: Final = 64 * 1024 * 1024


class SqlBook:
    """A core.book.Book on a file or in memory. Each verb is one transaction of its own, or part of one that
    the owner opened with `begin` and ends with `seal` and `commit` or with `rollback`.

    Not for use by two threads at once. After an exception everything is as before the transaction.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        *,
        retention_s: float = RETENTION_S,
        dead_s: float | None = None,
        cache_bytes_max: int = CACHE_BYTES_MAX,
        now: float = 0.0,
    ) -> None:
        retention = Retention(retention_s, retention_s if dead_s is None else dead_s)
        self.shelf = Shelf(connection, retention=retention, cache_bytes_max=cache_bytes_max, now=now)
        recovery.load(self.shelf)
        self._intake = Intake(self.shelf)
        self._grants = Grants(self.shelf)
        self._endings = Endings(self.shelf)
        self._reads = Reads(self.shelf)
        self.outbox = SqlOutbox(
            self.shelf.deliveries,
            step=self._step,
            tick=self.shelf.tick,
            seq_of=self._reads.visible_seq,
            mint=self.shelf.mint,
        )
        self.crons = SqlCrons(
            connection,
            step=self._step,
            tick=self.shelf.tick,
            store=lambda job, now: self._intake.enqueue([job], now)[0],
        )
        self.quarantine = QuarantineBook(self.shelf.deadly.inputs, store=self._store, tick=self.shelf.tick)
        self._amends = Amends(self.shelf)

    @classmethod
    def in_memory(
        cls, *, retention_s: float = RETENTION_S, dead_s: float | None = None, now: float = 0.0
    ) -> "SqlBook":
        """Return an empty book that lives as long as the process: for simulators and model tests."""
        connection = apsw.Connection(":memory:")
        schema.prepare(connection)
        return cls(connection, retention_s=retention_s, dead_s=dead_s, now=now)

    @contextmanager
    def _step(self) -> Generator[None]:
        shelf = self.shelf
        if shelf.in_transaction:
            yield
            return
        shelf.begin()
        try:
            yield
            shelf.seal()
            shelf.commit()
        except BaseException:
            shelf.rollback()
            raise
        shelf.committed()
        shelf.rung.clear()
        shelf.changes.clear()

    def _store(self, changes: Sequence[Change]) -> None:
        with self._step():
            self.shelf.deadly.write(changes)

    def new_id(self, now: float) -> str:
        """Return an id for one new job."""
        shelf = self.shelf
        if now > shelf.now:  # tick(), written out: every line of a bulk asks for one
            shelf.now = now
        return shelf.mint.new(shelf.now)

    def enqueue(self, jobs: Sequence[Job], *, now: float) -> list[Receipt]:
        """Store each job once; answer in order. Raises InvalidError for an id of another store."""
        with self._step():
            return self._intake.enqueue(jobs, self.shelf.tick(now))

    def recall(self, jobs: Sequence[Job], *, now: float) -> list[Receipt | None]:
        """Return what `enqueue` would answer for each job whose key is known, else None."""
        self.shelf.tick(now)
        return [self._intake.recall(job) for job in jobs]

    def lease(self, task: str, *, limit: int, lease_s: float, worker: str, now: float) -> list[Lease]:
        """Grant up to `limit` ready jobs of `task`, most urgent first."""
        with self._step():
            return self._grants.lease(task, limit, lease_s, worker, self.shelf.tick(now))

    def extend(self, claims: Sequence[Claim], *, lease_s: float, now: float) -> list[Hold]:
        """Renew leases and store progress; answer in order."""
        with self._step():
            return self._grants.extend(claims, lease_s, self.shelf.tick(now))

    def forgive(self, since: float, *, now: float) -> None:
        """Add the time from `since` to `now`, in which this store took no renewals, to every lease that held
        at `since`: its holder is not to blame."""
        with self._step():
            self._grants.forgive(since, self.shelf.tick(now))

    def commit(self, transitions: Sequence[Transition], *, now: float) -> list[bool]:
        """Apply each transition whose fence is current and whose job is running; answer in order."""
        with self._step():
            self.shelf.tick(now)
            return self._grants.commit(transitions)

    def cancel(self, ids: Sequence[str], *, now: float) -> list[CancelVerdict]:
        """Cancel waiting jobs at once and ask the holders of running ones; answer in order."""
        with self._step():
            return self._endings.cancel(ids, self.shelf.tick(now))

    def sweep(self, *, limit: int, now: float) -> Sweep:
        """Do what time alone decides, at most `limit` jobs of each kind."""
        with self._step():
            return self._endings.sweep(limit, self.shelf.tick(now))

    def has_queued(self, task: str) -> bool:
        """Say whether jobs of the task wait that may run now."""
        queue = self.shelf.index.by_name.get(task)
        return queue is not None and queue.queued > 0

    def sweep_due(self, now: float) -> bool:
        """Say whether a sweep would find anything to do; from memory alone."""
        return self._endings.sweep_due(now)

    def get(self, job_id: str, *, now: float) -> JobRecord | None:
        """Return the job, or None when it is unknown or past its retention."""
        return self._reads.get(job_id, self.shelf.tick(now))

    def was_purged(self, job_id: str, *, tenant: str | None = None, now: float) -> bool:
        """Say whether the id was given out once and its record is past retention.

        True as well for an id that was given out before a purged one and never stored: nobody has it. With a
        tenant, for the newest tombstones.KEPT_MAX / 2 to KEPT_MAX removed jobs of tenants with a name.
        """
        return self._reads.was_purged(job_id, tenant, self.shelf.tick(now))

    def find(self, query: Query, *, now: float) -> Page:
        """List jobs newest first. Raises InvalidError when `after` is not an id of this store."""
        return self._reads.find(query, self.shelf.tick(now))

    def depth(self, task: str, *, now: float) -> Depth:
        """Return how full one task's queue is; zeros for a task never seen."""
        self.shelf.tick(now)
        queue = self.shelf.index.by_name.get(task)
        return Depth() if queue is None else queue.depth()

    def holding(self, tenant: str, *, now: float) -> Held:
        """Return the open jobs of a tenant and their bytes."""
        self.shelf.tick(now)
        index = self.shelf.index
        if tenant:
            return index.holdings.by_tenant.get(tenant, Held())
        depths = [queue.depth() for queue in index.by_number.values()]
        others = index.holdings.by_tenant.values()
        return Held(
            sum(depth.open for depth in depths) - sum(held.jobs for held in others),
            sum(depth.bytes for depth in depths) - sum(held.bytes for held in others),
        )

    def tasks(self) -> list[str]:
        """Return the names of tasks that have jobs, are paused or drain, sorted."""
        return sorted(q.name for q in self.shelf.index.by_number.values() if q.jobs or q.paused or q.draining)

    def position(self, job_id: str, *, now: float) -> int | None:
        """Return the job's place among the queued jobs of its task, 1 is next; None when not queued."""
        self.shelf.tick(now)
        return self._reads.position(job_id)

    def pause(self, task: str, *, paused: bool, now: float) -> None:
        """Stop or resume granting leases of one task."""
        with self._step():
            self.shelf.tick(now)
            if not paused and task not in self.shelf.index.by_name:
                return
            queue = self.shelf.queue(task)
            self.shelf.touch(queue)
            queue.paused = paused
            if not paused:
                self.shelf.rung.add(task)
            self.shelf.connection.execute(
                "UPDATE queues SET paused = ? WHERE number = ?", (int(paused), queue.number)
            )

    def drain(self, task: str, *, draining: bool, now: float) -> None:
        """Mark one task as taking no new submissions, or take the mark away."""
        with self._step():
            self.shelf.tick(now)
            if not draining and task not in self.shelf.index.by_name:
                return
            queue = self.shelf.queue(task)
            self.shelf.touch(queue)
            queue.draining = draining
            self.shelf.connection.execute(
                "UPDATE queues SET draining = ? WHERE number = ?", (int(draining), queue.number)
            )

    def purge(self, ids: Sequence[str] | None = None, *, limit: int, now: float) -> int:
        """Remove final jobs: the named ones, or (None) up to `limit` past retention, longest past first."""
        gone = self.purge_part(ids, limit=limit, now=now)
        while ids is None and self.shelf.past.more and gone < limit:
            gone += self.purge_part(None, limit=limit - gone, now=now)
        return gone

    def purge_part(self, ids: Sequence[str] | None, *, limit: int, now: float) -> int:
        """Do as `purge` does, as far as one bounded search goes: there may be more while `past.more`."""
        with self._step():
            if ids is None:
                self.quarantine.age_out(now=now)
            return self._endings.purge(ids, limit, self.shelf.tick(now))

    def held(self, blobs: Sequence[str], *, now: float) -> list[bool]:
        """Say of each blob whether a stored job names it."""
        self.shelf.tick(now)
        return self._reads.held(blobs)

    def edit(self, job_id: str, payload: bytes, *, now: float) -> bool:
        """Keep a payload for the redrive of a dead job."""
        with self._step():
            return self._intake.edit(job_id, payload, self.shelf.tick(now))

    def redrive(self, job_id: str, job: Job, *, now: float) -> Receipt | None:
        """Store `job` as the successor of the dead job `job_id`, linked both ways in one step."""
        with self._step():
            return self._intake.redrive(job_id, job, self.shelf.tick(now))

    def waits_for(self, job_id: str, *, now: float) -> str | None:
        """Return the id of the job of the same ordering key that this one waits for, or None."""
        self.shelf.tick(now)
        return self._reads.waits_for(job_id)

    def amend(self, job_id: str, change: Amendment, *, now: float) -> AmendVerdict:
        """Give a waiting job another priority, or move it to another task."""
        with self._step():
            return self._amends.amend(job_id, change, self.shelf.tick(now))

    def set_shares(self, shares: Mapping[str, Share]) -> None:
        """Give tenants their weights and bounds; those not named have weight 1 and no bound."""
        shelf = self.shelf
        shelf.index.shares.set(shares, (held.lease.job.tenant for held in shelf.running.values()))

    def set_retention(self, by_task: Mapping[str, Retention]) -> None:
        """Keep the ended jobs of some tasks for another time than those of all."""
        self.shelf.past.set(by_task)

    def set_reserve(self, task: str, others_max: int | None) -> None:
        """Keep room for urgent jobs of a task: at most so many others of it run at once."""
        reserve = self.shelf.index.reserves.setdefault(task, Reserve())
        reserve.set(others_max, self.shelf.running_priorities(task))

    def set_order(self, task: str, order: Order) -> None:
        """Say what the order of a task's jobs goes by inside a priority."""
        with self._step():
            self._amends.set_order(task, order)

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back. Twice is harmless."""
        self.shelf.connection.close()
