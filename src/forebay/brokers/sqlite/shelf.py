"""Shelf: what the verbs share: the connection, the index, the cache, and one transaction at a time."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

import apsw

from forebay.brokers.sqlite.deadly import Deadly
from forebay.brokers.sqlite.deliveries import Deliveries
from forebay.brokers.sqlite.ids import IdMint
from forebay.brokers.sqlite.index import ReadyIndex
from forebay.brokers.sqlite.past import Past
from forebay.brokers.sqlite.rows import INSERT_RESULT, SELECT_RECORD, Found, Row, job_of, standing_of
from forebay.brokers.sqlite.spans import Spans
from forebay.brokers.sqlite.task_queue import TaskQueue
from forebay.brokers.sqlite.tombstones import Tombstones
from forebay.core.blobs import BLOB_MARK, SIGN, named
from forebay.core.job import Job, JobRecord, Lease, Settled
from forebay.core.lifecycle import State
from forebay.core.many import size_of
from forebay.core.retention import Keeping, Retention
from forebay.ports.broker import Change

CACHED_JOB_BYTES: Final = 700  # what one cached job costs beside its payload and metadata


class Held(NamedTuple):
    """A running job, by which row and queue it belongs to."""

    seq: int
    queue: TaskQueue
    lease: Lease


class JobCache:
    """Jobs that were stored a moment ago, so that leasing them reads nothing. Bounded in bytes; full means
    that later ones are read from the table when their turn comes.
    """

    def __init__(self, bytes_max: int) -> None:
        self._jobs: dict[int, Job] = {}
        self._bytes_max = bytes_max
        self.bytes = 0

    def put(self, group: list[tuple[int, Job]], size: int) -> None:
        """Keep new jobs of `size` bytes in all when there is room for all of them."""
        size += CACHED_JOB_BYTES * len(group)
        if self.bytes + size <= self._bytes_max:
            self.bytes += size
            self._jobs.update(group)

    def take(self, seqs: Sequence[int]) -> dict[int, Job]:
        """Return those of these jobs that are here, and forget them."""
        pop = self._jobs.pop
        taken = {seq: job for seq in seqs if (job := pop(seq, None)) is not None}
        self.bytes -= size_of(taken.values()) + CACHED_JOB_BYTES * len(taken)
        return taken

    def pop(self, seq: int) -> Job | None:
        """Return a job and forget it."""
        job = self._jobs.pop(seq, None)
        if job is not None:
            self.bytes -= len(job.payload) + len(job.metadata) + CACHED_JOB_BYTES
        return job

    def drop(self, seqs: list[int]) -> None:
        """Forget these."""
        for seq in seqs:
            self.pop(seq)


class Shelf:
    """One open store. Not for use by two threads at once."""

    def __init__(
        self, connection: apsw.Connection, *, retention: Retention, cache_bytes_max: int, now: float
    ) -> None:
        self.connection = connection
        self.now = now  # the largest seen
        self.index = ReadyIndex()
        self.journal = self.index.journal
        self.past = Past(connection, Keeping(retention), self.journal)
        self.cache = JobCache(cache_bytes_max)
        self.running: dict[str, Held] = {}
        self.soonest_until = 0.0  # no lease ends before this instant
        self.stored_seq = 0  # no row lies above
        self.purged_seq = 0  # the highest sequence ever purged
        self.floor = 0  # as stored: no pristine queued job lies below
        self.changes: list[Change] = []
        self.listening = False  # collect changes
        self.rung: set[str] = set()  # tasks that have new work
        self.cancels: set[str] = set()  # tasks of which a running job was asked to end
        self.has_blobs = False  # some job may name one
        self._touched: set[TaskQueue] = set()
        secret = bytes(self.meta("secret", b""))
        self.mint = IdMint(secret)
        self.tombstones = Tombstones(connection, self.journal, secret)
        self.deliveries = Deliveries(connection, self.journal, self.mint)
        self.deadly = Deadly(connection, self.journal)
        self.spans = Spans(connection)

    def meta(self, name: str, default: Any) -> Any:
        """Return a stored fact of the whole store."""
        value = self.connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).get
        return default if value is None else value

    def set_meta(self, name: str, value: Any) -> None:
        """Store a fact of the whole store."""
        self.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.connection.in_transaction

    def begin(self) -> None:
        """Begin the one transaction."""
        self.connection.execute("BEGIN IMMEDIATE")

    def seal(self) -> None:
        """Write what the transaction owes besides its rows; only COMMIT is left to do."""
        if self._touched:
            counts = [(queue.jobs, queue.dead, queue.number) for queue in self._touched]
            self.connection.executemany("UPDATE queues SET jobs = ?, dead = ? WHERE number = ?", counts)

    def commit(self) -> None:
        """Make the transaction durable, as far as `synchronous` goes. May run in another thread."""
        self.connection.execute("COMMIT")

    def committed(self) -> None:
        """Let the memory agree with what was made durable."""
        self._touched.clear()
        self.journal.forget()

    def rollback(self) -> None:
        """Take back the rows and everything in memory."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        self.journal.undo()
        self.spans.forget()
        for queue in self.index.by_number.values():
            queue.forget_lines()
        if self.index.shares.bounded:
            self.index.shares.recount(held.lease.job.tenant for held in self.running.values())
        for task, reserve in self.index.reserves.items():
            if reserve.others_max is not None:
                reserve.recount(self.running_priorities(task))
        self.soonest_until = 0.0  # a sweep in it may have looked past leases that are back now
        self._touched.clear()
        self.changes.clear()
        self.rung.clear()
        self.cancels.clear()

    def running_priorities(self, task: str) -> list[int]:
        """Return the priority of each running job of a task."""
        return [held.lease.job.priority for held in self.running.values() if held.queue.name == task]

    def tick(self, now: float) -> float:
        """Return `now`, or the largest one seen when that is larger."""
        if now > self.now:
            self.now = now
        return self.now

    def touch(self, queue: TaskQueue) -> None:
        """Say that counts of a queue are about to change."""
        if queue not in self._touched:
            self._touched.add(queue)
            self.journal.mark(queue)

    def queue(self, task: str) -> TaskQueue:
        """Return the queue of a task, stored when it is new."""
        queue = self.index.by_name.get(task)
        if queue is None:
            self.connection.execute("INSERT INTO queues(name) VALUES (?)", (task,))
            queue = self.index.add_task(self.connection.last_insert_rowid(), task)
            self.journal.undo_by(self.index.drop_task, queue)
        return queue

    def row(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        """Return the first row of a query."""
        rows = cast("list[tuple[Any, ...]]", self.connection.execute(sql, values).fetchall())
        return rows[0] if rows else None

    def find_seq(self, seq: int) -> Found | None:
        """Return the job of a row, whether or not it is past retention."""
        row = self.row(SELECT_RECORD, seq)
        if row is None:
            return None
        queue = self.index.by_number[row[2]]
        job = job_of(row, self.mint.text(row[1], seq), queue.name)
        return Found(seq, row[2], JobRecord(job, standing_of(row), row[-2], row[-1]))

    def find_id(self, job_id: str) -> Found | None:
        """Return a stored job, whether or not it is past retention."""
        place = self.mint.read(job_id)
        found = None if place is None else self.find_seq(place[1])
        return found if found is not None and found.record.job.id == job_id else None

    def find_visible(self, job_id: str, now: float) -> Found | None:
        """Return a stored job that is not past retention."""
        found = self.find_id(job_id)
        return None if found is None or self.is_past(found.record, now) else found

    def is_past(self, record: JobRecord, now: float) -> bool:
        """Whether a record is past retention."""
        standing = record.standing
        return self.past.keeping.gone_at(record.job.task, standing.state, standing.finished_at) <= now

    def tell(self, job_id: str, task: str, state: State, settled: Settled | None = None) -> None:
        """Note a change for listeners; they hear it when it is durable."""
        if self.listening:
            self.changes.append(Change(job_id, task, state, settled))

    def store_results(self, rows: Sequence[Row]) -> None:
        """Store how jobs ended."""
        self.connection.executemany(INSERT_RESULT, rows)
        self.past.landed(rows)
        self.name_blobs(rows, -1)

    def name_blobs(self, stored: Sequence[Sequence[Any]], column: int) -> None:
        """Store which blobs the payloads or outputs in this column of these rows name. The first column is
        the sequence. Nearly none name any."""
        rows = [
            (row[0], blob)
            for row in stored
            if (text := row[column]) is not None and SIGN in text and BLOB_MARK in text
            for blob in named(text)
        ]
        if rows:
            self.has_blobs = True
            self.connection.executemany("INSERT OR IGNORE INTO blob_refs VALUES (?, ?)", rows)

    def rename_blobs(self, seq: int, texts: Sequence[bytes | None]) -> None:
        """Store which blobs these texts of one job name, in place of what was stored of it."""
        if self.has_blobs:
            self.connection.execute("DELETE FROM blob_refs WHERE seq = ?", (seq,))
        self.name_blobs([(seq, text) for text in texts], 1)

    def move_floor(self, floor: int) -> None:
        """Store where a recovery scan begins."""
        self.set_meta("floor", floor)
        self.journal.undo_by(setattr, self, "floor", self.floor)
        self.floor = floor

    def hold(self, held: list[Held]) -> None:
        """Enter jobs as running."""
        self.running.update([(one.lease.job.id, one) for one in held])

    def let_go(self, held: list[Held]) -> None:
        """Take jobs out of the running ones."""
        for one in held:
            self.running.pop(one.lease.job.id, None)
