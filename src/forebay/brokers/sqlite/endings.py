"""Endings: cancel, sweep, purge: what ends or removes jobs without their holder."""

import math
from collections.abc import Sequence
from heapq import nsmallest

from forebay.brokers.sqlite.rows import (
    CANCEL_REQUESTED,
    DELETE_RUN,
    INSERT_RESULT,
    STATE_NUMBERS,
    Found,
    flags_of,
)
from forebay.brokers.sqlite.shelf import Held, Shelf
from forebay.brokers.sqlite.task_queue import Spot
from forebay.core.blobs import named
from forebay.core.job import CancelVerdict, Lease, Sweep
from forebay.core.lifecycle import WAITING, Event, State, next_state
from forebay.core.settle import waiting_end, waiting_error
from forebay.packed import attempts_bytes, error_bytes

_LATER = (
    "SELECT j.task, r.state, r.ready_at, j.ms, j.tenant, j.priority, j.deadline_at, j.ordering_key"
    " FROM runs r JOIN jobs j ON j.seq = r.seq WHERE r.seq = ?"
)
_GONE = "SELECT j.task, f.state, j.ms, j.tenant FROM jobs j JOIN results f ON f.seq = j.seq WHERE j.seq = ?"
_QUEUED = STATE_NUMBERS[State.QUEUED]
_DEAD = STATE_NUMBERS[State.DEAD]
FLOOR_STEP = 10_000  # how many jobs a recovery scan may look at in vain
FLOOR_S = 60.0  # between two looks for where it may begin, where fewer jobs came meanwhile


class Endings:
    """The verbs of time and of people. Each runs inside an open transaction of its shelf."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._floor_sought = (-FLOOR_STEP, -math.inf)  # how far the table went, and when

    def cancel(self, ids: Sequence[str], now: float) -> list[CancelVerdict]:
        """Cancel waiting jobs at once and ask the holders of running ones; answer in order."""
        return [self._cancel(job_id, now) for job_id in ids]

    def _cancel(self, job_id: str, now: float) -> CancelVerdict:
        held = self._shelf.running.get(job_id)
        if held is not None:
            self._request(job_id, held, now)
            return CancelVerdict.REQUESTED
        found = self._shelf.find_visible(job_id, now)
        if found is None:
            return CancelVerdict.UNKNOWN
        state = found.record.standing.state
        if state in WAITING:
            self._end(found, Event.CANCELLED, now)
            return CancelVerdict.CANCELLED
        return CancelVerdict.ALREADY if state is State.CANCELLED else CancelVerdict.FINAL

    def _request(self, job_id: str, held: Held, now: float) -> None:
        shelf = self._shelf
        if held.lease.cancel_requested:
            return
        shelf.connection.execute(
            f"UPDATE runs SET flags = flags | {CANCEL_REQUESTED}, cancel_at = ? WHERE seq = ?",
            (now, held.seq),
        )
        shelf.running[job_id] = held._replace(lease=held.lease._replace(cancel_requested=True))
        shelf.journal.undo_by(shelf.running.__setitem__, job_id, held)
        shelf.cancels.add(held.queue.name)

    def sweep(self, limit: int, now: float) -> Sweep:
        """Do what time alone decides and return the overdue leases."""
        expired = self._expire(limit, now)
        promoted = self._promote(limit, now)
        self._move_floor(now)
        return Sweep(tuple(promoted), tuple(expired), tuple(self._overdue(limit, now)))

    def sweep_due(self, now: float) -> bool:
        """Say whether `sweep` would find anything to do; from memory alone."""
        shelf = self._shelf
        if shelf.soonest_until <= now or shelf.index.is_due(now):
            return True
        return self._floor_due(now)

    def _expire(self, limit: int, now: float) -> list[str]:
        expired: list[str] = []
        for seq in self._shelf.index.ends_due(now, limit):
            found = self._shelf.find_seq(seq)
            if found is None or found.record.standing.state not in WAITING:
                self._shelf.index.unwatch_end(seq)
                continue
            self._end(found, waiting_end(found.record.job), now)
            expired.append(found.record.job.id)
        return expired

    def _end(self, found: Found, event: Event, now: float) -> None:
        # The only way out of the waiting states that is not a lease.
        shelf, seq = self._shelf, found.seq
        job, standing = found.record.job, found.record.standing
        queue = shelf.index.by_number[found.task]
        state = next_state(standing.state, event)
        shelf.touch(queue)
        if standing.state is State.QUEUED:
            queue.remove(seq, job)
            queue.queued -= 1
        else:
            shelf.index.leave_later(seq)
            if standing.state is State.RETRYING:
                queue.retrying -= 1
            else:
                queue.scheduled -= 1
        shelf.index.unwatch_end(seq)
        shelf.cache.pop(seq)
        queue.bytes -= job.size
        if shelf.index.leave_chain(queue, seq, job):
            shelf.rung.add(queue.name)
        if named(standing.checkpoint):
            shelf.rename_blobs(seq, (job.payload,))
        shelf.index.holdings.add((job,), -1)
        shelf.connection.execute(DELETE_RUN, (seq,))
        shelf.connection.execute(
            INSERT_RESULT,
            (
                seq,
                STATE_NUMBERS[state],
                standing.attempt,
                standing.fence,
                standing.deaths,
                standing.releases,
                flags_of(False, event is Event.CANCELLED or standing.cancel_requested),
                standing.ready_at,
                now,
                standing.started_at,
                standing.worker,
                error_bytes(waiting_error(event, standing.attempt)),
                attempts_bytes(standing.attempts),
                None,
            ),
        )
        if job.callback_url is not None:
            shelf.deliveries.owe([(seq, job.callback_url, now)])
        shelf.tell(job.id, job.task, state)

    def _promote(self, limit: int, now: float) -> list[str]:
        shelf, index = self._shelf, self._shelf.index
        promoted: list[str] = []
        updates: list[tuple[int]] = []
        for seq in index.later.due(now, limit):
            row = shelf.row(_LATER, seq)
            index.leave_later(seq)
            if row is None:
                continue
            task, state, ready_at, ms, tenant, priority, deadline_at, ordering_key = row
            queue = index.by_number[task]
            shelf.touch(queue)
            if state == STATE_NUMBERS[State.RETRYING]:
                queue.retrying -= 1
            else:
                queue.scheduled -= 1
            queue.queued += 1
            shelf.rung.add(queue.name)
            queue.place(Spot(seq, tenant, priority, ready_at, deadline_at, ordering_key))
            updates.append((seq,))
            job_id = shelf.mint.text(ms, seq)
            promoted.append(job_id)
            shelf.tell(job_id, queue.name, State.QUEUED)
        if updates:
            shelf.connection.executemany(f"UPDATE runs SET state = {_QUEUED} WHERE seq = ?", updates)
        return promoted

    def _overdue(self, limit: int, now: float) -> list[Lease]:
        shelf = self._shelf
        if shelf.soonest_until > now or limit <= 0:
            return []
        leases = [held.lease for held in shelf.running.values()]
        shelf.soonest_until = min((lease.until for lease in leases), default=now + 1.0)
        due = (lease for lease in leases if lease.until <= now)
        return nsmallest(limit, due, key=lambda lease: (lease.until, lease.job.id))

    def _floor_due(self, now: float) -> bool:
        # To find the floor is to look at every lane: not for each sweep while an old job holds it.
        seq, at = self._floor_sought
        stored = self._shelf.stored_seq
        if stored < self._shelf.floor + FLOOR_STEP:
            return False
        return stored >= seq + FLOOR_STEP or now >= at + FLOOR_S

    def _move_floor(self, now: float) -> None:
        # Recovery scans the table from here on; without it a restart would read every finished job.
        if not self._floor_due(now):
            return
        shelf = self._shelf
        self._floor_sought = (shelf.stored_seq, now)
        floor = shelf.index.floor(shelf.stored_seq + 1)
        if floor >= shelf.floor + FLOOR_STEP:
            shelf.move_floor(floor)

    def purge(self, ids: Sequence[str] | None, limit: int, now: float) -> int:
        """Remove final jobs: the named ones, or those past retention, longest past first, as far as one
        search goes."""
        shelf = self._shelf
        if ids is None:
            seqs = shelf.past.find(now, max(0, limit), self._number_of)
        else:
            places = [place for job_id in ids if (place := shelf.mint.read(job_id)) is not None]
            seqs = [seq for ms, seq in dict.fromkeys(places) if self._is_final(ms, seq)]
        shelf.tombstones.add([self._count_purged(seq) for seq in seqs])
        rows = [(seq,) for seq in seqs]
        if rows:
            for table in (
                "jobs",
                "results",
                "redrives",
                "edits",
                "joins",
                *(("blob_refs",) if shelf.has_blobs else ()),
            ):
                shelf.connection.executemany(f"DELETE FROM {table} WHERE seq = ?", rows)
            shelf.deliveries.drop(seqs)
            self._remember_purged(max(seqs))
            shelf.spans.purged(seqs, shelf.stored_seq)
        return len(seqs)

    def _number_of(self, task: str) -> int | None:
        queue = self._shelf.index.by_name.get(task)
        return None if queue is None else queue.number

    def _is_final(self, ms: int, seq: int) -> bool:
        sql = "SELECT 1 FROM results f JOIN jobs j ON j.seq = f.seq WHERE f.seq = ? AND j.ms = ?"
        return self._shelf.row(sql, seq, ms) is not None

    def _count_purged(self, seq: int) -> tuple[int, str, str]:
        row = self._shelf.row(_GONE, seq)
        assert row is not None
        queue = self._shelf.index.by_number[row[0]]
        self._shelf.touch(queue)
        queue.jobs -= 1
        queue.dead -= row[1] == _DEAD
        return seq, self._shelf.mint.text(row[2], seq), row[3]

    def _remember_purged(self, seq: int) -> None:
        shelf = self._shelf
        if seq > shelf.purged_seq:
            shelf.set_meta("purged_seq", seq)
            shelf.journal.undo_by(setattr, shelf, "purged_seq", shelf.purged_seq)
            shelf.purged_seq = seq
