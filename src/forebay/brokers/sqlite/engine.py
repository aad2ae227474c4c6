"""SqliteBroker: the embedded engine behind ports.broker.Broker."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import apsw

from forebay.brokers.sqlite import schema
from forebay.brokers.sqlite.committer import Committer, Sync
from forebay.brokers.sqlite.crons import SqliteCrons
from forebay.brokers.sqlite.leaving import Leaving, check_not_left, served_again
from forebay.brokers.sqlite.lock import OwnerLock, prepare_directory
from forebay.brokers.sqlite.outbox import SqliteOutbox
from forebay.brokers.sqlite.place import Place
from forebay.brokers.sqlite.quarantine import SqliteQuarantine
from forebay.brokers.sqlite.store import CACHE_BYTES_MAX, RETENTION_S, SqlBook
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
from forebay.core.retention import Retention
from forebay.core.tenant import Held
from forebay.core.turns import Order
from forebay.errors import ForebayError
from forebay.ports.broker import Capabilities, Doorbell, Listener, Load
from forebay.ports.clock import Clock

PURGE_JOBS_MAX: Final = 1_000  # removed in one transaction
FIND_WINDOW_MAX: Final = 1_000  # rows looked at before others get their turn


class SqliteBroker:
    """A ports.broker.Broker on one directory that this process owns. Made by `open`, used in one loop.

    Order inside one flush: settlements and renewals, then submissions, then everything else, so that a
    lease sees what was submitted in the same turn. Readers see what is durable and nothing else.
    """

    capabilities = Capabilities(durable=True)

    def __init__(
        self, book: SqlBook, path: Path, lock: OwnerLock, committer: Committer, place: Place
    ) -> None:
        self._book = book
        self._path = path
        self._lock = lock
        self._committer = committer
        self._place = place
        self.outbox = SqliteOutbox(book, committer)
        self.crons = SqliteCrons(book.crons, committer, place)
        self.quarantine = SqliteQuarantine(book, committer)
        self.leaving = Leaving(book, committer)

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        clock: Clock,
        retention_s: float = RETENTION_S,
        dead_s: float | None = None,
        sync: Sync = "full",
        cache_bytes_max: int = CACHE_BYTES_MAX,
        on_broken: Callable[[ForebayError], None] | None = None,
        on_gone: Callable[[ForebayError], None] | None = None,
        vfs: str | None = None,
        leaving: bool = False,
    ) -> "SqliteBroker":
        """Open the store of a directory, made when it is not there, and recover what it holds.

        `on_gone` hears, again and again, that the file is no longer where it was: nothing new is accepted.
        `leaving`: only to move it elsewhere.

        Raises ConfigError (the directory), StoreLockedError (another owner), StoreVersionError (a newer
        schema), StoreFullError or StoreBrokenError, each with one line.
        """
        prepare_directory(directory)
        check_not_left(directory)
        lock = OwnerLock(directory)
        path = directory / schema.FILE_NAME
        try:
            connection = schema.open_file(path, vfs=vfs)
            try:
                schema.check(connection, path)
                book = SqlBook(
                    connection,
                    retention_s=retention_s,
                    dead_s=dead_s,
                    cache_bytes_max=cache_bytes_max,
                    now=clock.now(),
                )
                if not leaving:
                    served_again(book)
            except apsw.Error as error:
                connection.close()
                raise schema.as_store_error(error, path) from None
            except BaseException:
                connection.close()
                raise
        except BaseException:
            lock.release()
            raise
        place = Place(path, on_gone=on_gone, spare_b=lambda: schema.spare_b(connection))
        committer = Committer(book, path, clock=clock, sync=sync, on_broken=on_broken, place=place)
        return cls(book, path, lock, committer, place)

    def new_id(self, now: float) -> str:
        """Return an id for one new job."""
        return self._book.new_id(now)

    def enqueue(self, jobs: Sequence[Job], *, now: float) -> Awaitable[list[Receipt]]:
        """Store each job once, durably; answer in order.

        Raises StoreUnavailableError when too much waits for the disk already, StoreFullError when the disk
        is full (nothing of the call was stored), StoreBrokenError when the outcome is unknown.
        """
        return self._committer.enqueue(jobs, now)

    async def recall(self, jobs: Sequence[Job], *, now: float) -> list[Receipt | None]:
        """Return what `enqueue` would answer for each job whose key is known, else None."""
        return await self._committer.read(lambda book: book.recall(jobs, now=now))

    def lease(
        self, task: str, *, limit: int, lease_s: float, worker: str, now: float
    ) -> Awaitable[list[Lease]]:
        """Grant up to `limit` ready jobs, most urgent first. Answers with the next flush, maybe empty; at
        once when nothing waits and nothing is on its way."""
        self._committer.standstill.lease_s = lease_s
        if self._committer.quiet and not self._book.has_queued(task):
            return self._committer.done([])
        return self._committer.later(
            lambda: self._book.lease(task, limit=limit, lease_s=lease_s, worker=worker, now=now)
        )

    async def extend(self, claims: Sequence[Claim], *, lease_s: float, now: float) -> list[Hold]:
        """Renew leases and store progress; answer in order."""
        self._committer.standstill.lease_s = lease_s
        holds: list[Hold] = await self._committer.early(
            lambda: self._book.extend(claims, lease_s=lease_s, now=now)
        )
        return holds

    def commit(self, transitions: Sequence[Transition], *, now: float) -> Awaitable[list[bool]]:
        """Apply transitions whose fence is current, durably; answer in order.

        On a full disk it waits for room rather than fail: results are not thrown away.
        """
        return self._committer.early(
            lambda: self._book.commit(transitions, now=now), size=len(transitions), patient=True
        )

    async def cancel(self, ids: Sequence[str], *, now: float) -> list[CancelVerdict]:
        """Cancel waiting jobs, ask the holders of running ones; answer in order."""
        verdicts: list[CancelVerdict] = await self._committer.later(lambda: self._book.cancel(ids, now=now))
        return verdicts

    async def sweep(self, *, limit: int, now: float) -> Sweep:
        """Do what time alone decides and return overdue leases."""
        self._place.problem()  # readiness hears of it although nobody submits
        if self._committer.quiet and not self._book.sweep_due(now):
            return Sweep()  # five times a second for nothing: not worth a transaction
        swept: Sweep = await self._committer.later(lambda: self._book.sweep(limit=limit, now=now))
        return swept

    async def pause(self, task: str, *, paused: bool, now: float) -> None:
        """Stop or resume granting leases of one task, durably."""
        await self._committer.later(lambda: self._book.pause(task, paused=paused, now=now))

    async def drain(self, task: str, *, draining: bool, now: float) -> None:
        """Mark one task as taking no new submissions, or take the mark away, durably."""
        await self._committer.later(lambda: self._book.drain(task, draining=draining, now=now))

    async def amend(self, job_id: str, change: Amendment, *, now: float) -> AmendVerdict:
        """Give a waiting job another priority or task, durably."""
        verdict: AmendVerdict = await self._committer.later(lambda: self._book.amend(job_id, change, now=now))
        return verdict

    async def waits_for(self, job_id: str, *, now: float) -> str | None:
        """Return the id of the job of the same ordering key that this one waits for, or None."""
        return await self._committer.read(lambda book: book.waits_for(job_id, now=now))

    def set_shares(self, shares: Mapping[str, Share]) -> None:
        """Give tenants their weights and bounds. Raises ValueError for a share that makes no sense."""
        self._book.set_shares(shares)
        self._committer.bells.ring(self._book.tasks())

    def set_retention(self, by_task: Mapping[str, Retention]) -> None:
        """Keep the ended jobs of some tasks for another time than those of all."""
        self._book.set_retention(by_task)

    def set_reserve(self, task: str, others_max: int | None) -> None:
        """Keep room for urgent jobs of a task: at most so many others of it run at once."""
        self._book.set_reserve(task, others_max)
        self._committer.bells.ring([task])

    async def set_order(self, task: str, order: Order) -> None:
        """Say what the order of a task's jobs goes by inside a priority."""
        await self._committer.later(lambda: self._book.set_order(task, order))

    async def purge(self, ids: Sequence[str] | None = None, *, limit: int, now: float) -> int:
        """Remove final jobs, PURGE_JOBS_MAX a transaction. Returns how many went."""
        if ids is not None:
            parts = [ids[at : at + PURGE_JOBS_MAX] for at in range(0, len(ids), PURGE_JOBS_MAX)]
            return sum([await self._purge(part, len(part), now) for part in parts])
        gone = 0
        while gone < limit:
            want = min(PURGE_JOBS_MAX, limit - gone)
            gone += await self._purge(None, want, now)
            if not self._book.shelf.past.more:
                break
        return gone

    async def scrub(self) -> None:
        """Leave nothing of what was removed in the files. Writing stops while the file is written anew.

        Raises StoreFullError when the disk has no room for it once more: nothing has changed then.
        """
        await self._committer.scrub()

    async def _purge(self, ids: Sequence[str] | None, limit: int, now: float) -> int:
        gone: int = await self._committer.later(lambda: self._book.purge_part(ids, limit=limit, now=now))
        return gone

    async def edit(self, job_id: str, payload: bytes, *, now: float) -> bool:
        """Keep a payload for the redrive of a dead job, durably."""
        return bool(await self._committer.later(lambda: self._book.edit(job_id, payload, now=now)))

    async def redrive(self, job_id: str, job: Job, *, now: float) -> Receipt | None:
        """Store `job` as the successor of the dead job `job_id`."""
        gone = self._place.problem()
        if gone is not None:
            raise gone
        receipt: Receipt | None = await self._committer.later(
            lambda: self._book.redrive(job_id, job, now=now)
        )
        return receipt

    async def held(self, blobs: Sequence[str], *, now: float) -> list[bool]:
        """Say of each blob whether a stored job names it."""
        return await self._committer.read(lambda book: book.held(blobs, now=now))

    async def get(self, job_id: str, *, now: float) -> JobRecord | None:
        """Return the job, or None when it is unknown or past its retention."""
        return await self._committer.read(lambda book: book.get(job_id, now=now))

    async def was_purged(self, job_id: str, *, tenant: str | None = None, now: float) -> bool:
        """Say whether the id was given out once and is past retention; with a tenant, if it was its."""
        return await self._committer.read(lambda book: book.was_purged(job_id, tenant=tenant, now=now))

    async def find(self, query: Query, *, now: float) -> Page:
        """List jobs newest first. Others get their turn every FIND_WINDOW_MAX rows."""
        records: list[JobRecord] = []
        window, after = query.window_max, query.after
        while True:
            part = query._replace(
                after=after, limit=query.limit - len(records), window_max=min(window, FIND_WINDOW_MAX)
            )
            if records or after is not query.after:
                await self._committer.turn()  # a long search lets a flush begin between its windows
            page = await self._committer.read(partial(SqlBook.find, query=part, now=now))
            records += page.records
            window -= FIND_WINDOW_MAX
            after = page.next_after
            if after is None or len(records) >= query.limit or window <= 0:
                return Page(tuple(records), after)

    async def depth(self, task: str, *, now: float) -> Depth:
        """Return how full one task's queue is."""
        return await self._committer.read(lambda book: book.depth(task, now=now))

    def depth_now(self, task: str, *, now: float) -> Depth:
        """Return the same without IO, with the submissions that still wait for the disk."""
        return self._committer.pending.with_waiting(task, self._book.depth(task, now=now))

    def load_now(self, task: str, *, now: float) -> Load:
        """Return what admission asks on every submission."""
        return self._committer.pending.load(task, self._book.shelf.index.by_name.get(task))

    def holding_now(self, tenant: str, *, now: float) -> Held:
        """Return what a tenant holds, with its submissions that still wait for the disk."""
        held, waiting = self._book.holding(tenant, now=now), self._committer.pending.held(tenant)
        return Held(held.jobs + waiting.jobs, held.bytes + waiting.bytes)

    def place_now(self, job: Job, *, now: float) -> int | None:
        """Return the place in line of a job that was just stored; reads nothing and waits for no flush."""
        queue = self._book.shelf.index.by_name.get(job.task)
        if queue is None:
            return None
        ahead = queue.ahead_of(self._book.shelf.mint.seq_of(job.id), job, job.run_at)
        return ahead + 1 if ahead >= 0 else None  # below 0 it was leased in the flush that stored it

    async def tasks(self) -> list[str]:
        """Return the names of tasks that have jobs, are paused or drain, sorted."""
        return await self._committer.read(lambda book: book.tasks())

    async def position(self, job_id: str, *, now: float) -> int | None:
        """Return the job's place in line, 1 is next; None when not queued."""
        return await self._committer.read(lambda book: book.position(job_id, now=now))

    def on_work(self, doorbell: Doorbell) -> Callable[[], None]:
        """Register a doorbell; returns the way to remove it.

        Rings when a submission is taken in, before it is written, so that a lease asked for at once shares
        its flush; and again when work is durable.
        """
        return self._committer.bells.on_work(doorbell)

    def on_cancel(self, doorbell: Doorbell) -> Callable[[], None]:
        """Register a bell for cancels of running jobs; returns the way to remove it."""
        return self._committer.bells.on_cancel(doorbell)

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Register a listener of durable changes; returns the way to remove it."""
        remove = self._committer.bells.on_change(listener)
        self._book.shelf.listening = True

        def removed() -> None:
            remove()
            self._book.shelf.listening = self._committer.bells.has_listeners

        return removed

    def stats(self) -> dict[str, float]:
        """Return gauges: file_bytes, wal_bytes, sync_s (of the last flush), flushes, flushed_jobs (ever and
        of the last flush), waiting_bytes (submissions not yet on disk), cache_bytes.
        """
        return {
            "file_bytes": _size(self._path),
            "wal_bytes": _size(Path(f"{self._path}-wal")),
            "sync_s": self._committer.sync_s,
            "flushes": self._committer.flushes,
            "flushed_jobs": self._committer.flushed_jobs,
            "flushed_jobs_last": self._committer.flushed_jobs_last,
            "waiting_bytes": self._committer.pending.bytes,
            "cache_bytes": self._book.shelf.cache.bytes,
        }

    async def close(self) -> None:
        """Write what was begun, then let go of everything. Twice is harmless."""
        if not await self._committer.close():
            return
        try:
            self._book.close()
        except apsw.Error:
            pass  # everything answered is in the write-ahead log already
        self._lock.release()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
