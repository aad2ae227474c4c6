"""Committer: group commit. Verbs wait in lists; one transaction writes them all; then everybody hears.

No timer and no writer thread: a flush starts when the one before has ended. Rows are written in the event
loop; only the wait for the disk happens in a thread.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import apsw

from forebay.brokers.sqlite import schema
from forebay.brokers.sqlite.bells import Bells
from forebay.brokers.sqlite.flush import Batch, Enqueue, Op, Pending, weigh, weigh_tenants
from forebay.brokers.sqlite.place import Place
from forebay.brokers.sqlite.standstill import Standstill
from forebay.brokers.sqlite.store import SqlBook
from forebay.brokers.sqlite.sync import SyncThread
from forebay.core.job import Job, Receipt
from forebay.errors import ForebayError, StoreBrokenError, StoreFullError, StoreUnavailableError
from forebay.ports.clock import Clock

T = TypeVar("T")

# full: SQLite syncs inside COMMIT. own: the same call, made by us after it and outside of SQLite's locks.
# normal: no sync before the answer; only there to prove that the tests of power loss can fail.
Sync = Literal["full", "own", "normal"]

FULL_RETRY_S: Final = 0.5  # how long a full disk is left alone before the next try
CLOSE_WAIT_MAX_S: Final = 5.0  # how long closing waits for a full disk


class Committer:
    """Takes calls in, writes them in flushes, answers. For one event loop."""

    def __init__(
        self,
        book: SqlBook,
        path: Path,
        *,
        clock: Clock,
        sync: Sync,
        on_broken: Callable[[ForebayError], None] | None,
        place: Place,
    ) -> None:
        self.bells = Bells()
        self.pending = Pending()
        self.flushes = self.flushed_jobs = self.flushed_jobs_last = 0
        self.sync_s = 0.0  # of the last flush: its rows, its sync
        self._book = book
        self._path = path
        self._clock = clock
        self._sync = sync
        self._on_broken = on_broken
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._thread = SyncThread(self._loop)
        self._batch: Batch | None = None  # being written or synced
        self._woken = False
        self._idle: asyncio.Future[None] | None = None  # resolved when the flush that runs has ended
        self._scrubs: list[Op] = []
        self._full_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._looks: list[tuple[Callable[[SqlBook], Any], asyncio.Future[Any]]] = []
        self.standstill = Standstill(clock.now())
        self._beats = self._loop.call_later(self.standstill.beat_s, self._beat)
        self._broken: ForebayError | None = None
        self._closed = False
        self._wal_file = -1
        self._wal_pages = 0
        self._began = 0.0
        connection = book.shelf.connection
        if sync != "full":
            connection.execute("PRAGMA synchronous=NORMAL")
        connection.set_wal_hook(self._note_wal)

    def enqueue(self, jobs: Sequence[Job], now: float) -> "asyncio.Future[list[Receipt]]":
        """Let a submission wait for its flush; the future has its receipts, or why it was refused."""
        future: asyncio.Future[list[Receipt]] = self._loop.create_future()
        try:
            self._check_open()
            came_at = self._clock.now()
            self._check_room(came_at)
            weights = weigh(jobs)
        except Exception as error:
            future.set_exception(error)
            return future
        self.pending.add_enqueue(Enqueue(jobs, now, future, weights, came_at, weigh_tenants(jobs)))
        if self.bells.has_doorbells:
            self.bells.ring(weights)
        self._wake()
        return future

    def early(
        self, call: Callable[[], Any], *, size: int = 0, patient: bool = False
    ) -> "asyncio.Future[Any]":
        """Let a call of a holder wait for the next flush; `patient` ones wait out a full disk."""
        self._check_open()
        op = Op(call, self._loop.create_future(), size, patient)
        self.pending.early.append(op)
        self._wake()
        return op.future

    def later(self, call: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Let any other call wait for the next flush, behind the submissions."""
        self._check_open()
        op = Op(call, self._loop.create_future())
        self.pending.later.append(op)
        self._wake()
        return op.future

    @property
    def quiet(self) -> bool:
        """Whether nothing is being written and nothing waits to be: memory is what the disk holds."""
        return self._batch is None and not self.pending and self._broken is None and not self._closed

    def done(self, answer: T) -> "asyncio.Future[T]":
        """Return the answer of a call that needs no flush."""
        future: asyncio.Future[T] = self._loop.create_future()
        future.set_result(answer)
        return future

    async def close(self) -> bool:
        """Write what was begun and end the thread; False when that was done before."""
        if self._closed:
            return False
        self._closed = True
        give_up = self._clock.now() + CLOSE_WAIT_MAX_S
        while (self._batch is not None or self.pending) and self._broken is None:
            if self._full_until and self._clock.now() > give_up:
                break
            await self._next_idle()
        self._fail([*self.pending.take_all(), *self._scrubs], StoreUnavailableError("the store is closed"))
        if self._timer is not None:
            self._timer.cancel()
        self._beats.cancel()
        self._thread.stop()
        if self._wal_file >= 0:
            os.close(self._wal_file)
            self._wal_file = -1
        self.bells.clear()
        return True

    def _check_open(self) -> None:
        if self._broken is not None:
            raise StoreBrokenError(str(self._broken))
        if self._closed:
            raise StoreUnavailableError("the store is closed")

    def _check_room(self, now: float) -> None:
        if now < self._full_until:
            raise StoreFullError(f"the disk of {self._path} is full", retry_after_s=FULL_RETRY_S)
        late = self.pending.overload(now)
        if late is not None:
            raise StoreUnavailableError(late, retry_after_s=1.0)

    def _wake(self) -> None:
        if not self._woken and self._batch is None:
            self._woken = True
            self._loop.call_soon(self._flush)

    def read(self, look: "Callable[[SqlBook], T]") -> "asyncio.Future[T]":
        """Look at the book when everything in it is durable: at once, or between this flush and the next.

        Looks run where a flush ends and before another begins. Waiting for a quiet moment instead would
        never end under a steady stream of writes. Each should be short: the next flush waits for it.
        """
        self._check_open()
        future: asyncio.Future[T] = self._loop.create_future()
        if self._batch is None:
            _look(look, self._book, future)
        else:
            self._looks.append((look, future))
        return future

    async def turn(self) -> None:
        """Return after everybody else in the loop had a turn."""
        waiter = self._loop.create_future()
        self._loop.call_soon(waiter.set_result, None)
        await waiter

    async def _next_idle(self) -> None:
        if self._idle is None or self._idle.done():
            self._idle = self._loop.create_future()
        await asyncio.shield(self._idle)

    def _flush(self) -> None:
        self._woken = False
        if self._batch is not None or self._broken is not None:
            return
        if self.pending.has_enqueues:
            gone = self._place.problem()
            if gone is not None:
                self._fail(self.pending.take_all_enqueues(), gone)
        full = self._clock.now() < self._full_until
        batch = self.pending.take(patient_only=full)
        if batch is None:
            self._settled()
            if self.pending:
                self._retry_later()
            return
        self._batch = batch
        self._began = self._clock.now()
        try:
            self._write(batch)
        except apsw.Error as error:
            self._failed(error)
        except Exception as error:
            # Not the store: one of the calls is wrong. Alone, each gets what it deserves.
            self._book.shelf.rollback()
            self.standstill.put_back()
            self._batch = None
            if batch.is_single:
                batch.fail(error)
            else:
                self.pending.put_back_singly(batch)
            self._settled()
            self._again()

    def _write(self, batch: Batch) -> None:
        shelf = self._book.shelf
        self.standstill.look(self._clock.now())
        deaf_since = (
            self.standstill.take()
        )  # before anything can fail: what is put back then is of this flush
        shelf.begin()
        if deaf_since is not None:
            self._book.forgive(deaf_since, now=self._began)
        batch.run(self._book)
        shelf.seal()
        if self._sync != "full":
            shelf.commit()  # written, not yet synced
        step = shelf.commit if self._sync == "full" else self._sync_wal if self._sync == "own" else _nothing
        self._thread.run(step, self._synced)

    def _beat(self) -> None:
        self.standstill.look(self._clock.now())
        self._beats = self._loop.call_later(self.standstill.beat_s, self._beat)

    def _sync_wal(self) -> None:
        if self._wal_file < 0:
            self._wal_file = os.open(f"{self._path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        os.fdatasync(self._wal_file)

    def _synced(self, error: BaseException | None) -> None:
        batch = self._batch
        assert batch is not None
        if error is not None:
            self._failed(error)
            return
        shelf = self._book.shelf
        self._full_until = 0.0
        changes, rung, cancels = shelf.changes, shelf.rung, shelf.cancels
        shelf.changes, shelf.rung, shelf.cancels = [], set(), set()
        shelf.committed()
        self.flushes += 1
        self.flushed_jobs_last = batch.jobs
        self.flushed_jobs += batch.jobs
        self.sync_s = self._clock.now() - self._began
        batch.answer()
        self.bells.hear(changes)
        self.bells.ring(rung)
        if cancels:
            self.bells.ring_cancels(cancels)
        if shelf.deliveries.fresh:
            shelf.deliveries.fresh = False
            self.bells.ring_owed()
        if self._scrubs:
            self._thread.run(self._scrub, self._scrubbed)
        elif self._wal_pages >= schema.CHECKPOINT_PAGES:
            self._thread.run(self._checkpoint, self._checkpointed)
        else:
            self._ended()

    def scrub(self) -> "asyncio.Future[None]":
        """Write the file anew behind the next flush; nothing else is written meanwhile."""
        self.later(_nothing)
        op = Op(_nothing, self._loop.create_future())
        self._scrubs.append(op)
        return op.future

    def _scrub(self) -> None:
        self._wal_pages = 0
        schema.scrub(self._book.shelf.connection)

    def _scrubbed(self, error: BaseException | None) -> None:
        scrubs, self._scrubs = self._scrubs, []
        self._book.shelf.spans.forget()
        self.standstill.deaf(self._began)  # no lease could be renewed while it went on
        if error is not None and not isinstance(error, apsw.FullError):
            self._scrubs = scrubs
            self._break(error, None)
            return
        if error is not None:
            told = f"the disk of {self._path} has no room to write the file anew"
            self._fail(scrubs, StoreFullError(told))
        for op in scrubs:
            if not op.future.done():
                op.future.set_result(None)
        self._ended()

    def _checkpoint(self) -> None:
        self._wal_pages = 0
        self._book.shelf.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _checkpointed(self, error: BaseException | None) -> None:
        # Full or busy: the log grows and is tried again. Anything else may have hurt the file.
        if error is None or isinstance(error, apsw.FullError | apsw.BusyError):
            self._ended()
        else:
            self._break(error, None)

    def _note_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _failed(self, error: BaseException) -> None:
        batch = self._batch
        assert batch is not None
        if not isinstance(error, apsw.FullError):
            self._break(error, batch)
            return
        try:
            self._book.shelf.rollback()
        except apsw.Error as worse:
            self._break(worse, batch)
            return
        # Nothing of this flush is stored. Results are worth more than new work: they are tried alone, now
        # and then again until there is room.
        full = StoreFullError(f"the disk of {self._path} is full", retry_after_s=FULL_RETRY_S)
        alone = not batch.refuse(full)
        self.pending.early[:0] = batch.patient_ops()
        self._full_until = self._clock.now() + FULL_RETRY_S
        self.standstill.put_back()
        self.standstill.deaf(self._began)
        self._batch = None
        self._retry_later()
        self._settled()
        if not alone:
            self._again()

    def _retry_later(self) -> None:
        # One timer: what waits for room is tried again although nobody asks for anything new.
        if self._timer is None:
            self._timer = self._loop.call_later(FULL_RETRY_S, self._retry)

    def _retry(self) -> None:
        self._timer = None
        if self.pending:
            self._wake()

    def _break(self, error: BaseException, batch: Batch | None) -> None:
        known = schema.as_store_error(error, self._path) if isinstance(error, apsw.Error) else None
        text = str(known) if known is not None else f"{self._path} failed: {error}"
        self._broken = StoreBrokenError(f"{text}; what was being written may or may not be stored")
        self._batch = None
        if batch is not None:
            batch.fail(self._broken)
        self._fail([*self.pending.take_all(), *self._scrubs], self._broken)
        self._settled()
        if self._on_broken is not None:
            self._on_broken(self._broken)

    def _ended(self) -> None:
        self._batch = None
        self._settled()
        self._again()

    def _again(self) -> None:
        if self.pending:
            self._wake()

    def _settled(self) -> None:
        looks, self._looks = self._looks, []
        for look, future in looks:
            if self._broken is not None:
                future.set_exception(StoreBrokenError(str(self._broken)))
            elif not future.done():  # whoever asked may have gone
                _look(look, self._book, future)
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _fail(self, ops: "Sequence[Op | Enqueue]", error: ForebayError) -> None:
        for op in ops:
            if not op.future.done():
                op.future.set_exception(error)


def _look(look: "Callable[[SqlBook], T]", book: SqlBook, future: "asyncio.Future[T]") -> None:
    try:
        future.set_result(look(book))
    except Exception as error:
        future.set_exception(error)


def _nothing() -> None:
    pass
