"""Grants: lease, extend, commit: what holders of jobs do."""

from collections.abc import Sequence

from forebay.brokers.sqlite.rows import (
    DEGRADED_SHIFT,
    DELETE_RUN,
    DELETE_RUNS,
    INSERT_RUN,
    SELECT_GRANTABLE,
    SELECT_JOB,
    STATE_NUMBERS,
    Row,
    end_of,
    flags_of,
    job_of,
    lease_of,
    run_of,
)
from forebay.brokers.sqlite.shelf import Held, Shelf
from forebay.brokers.sqlite.task_queue import spot_of
from forebay.core.blobs import named
from forebay.core.job import Claim, Hold, Job, Lease, Settled, Transition
from forebay.core.lifecycle import FINAL, State
from forebay.core.settle import cancelled_instead
from forebay.packed import attempts_bytes, error_bytes

_RUNNING = STATE_NUMBERS[State.RUNNING]
_SUCCEEDED = STATE_NUMBERS[State.SUCCEEDED]
_SELECT_JOBS = SELECT_JOB.replace("j.seq = ?", "j.seq BETWEEN ? AND ?")
_GRANT_AGAIN = (
    f"UPDATE runs SET state = {_RUNNING}, attempt = ?, fence = ?, lease_until = ?, started_at = ?,"
    " worker = ?, progress = NULL WHERE seq = ?"
)
_EXTEND = (
    "UPDATE runs SET lease_until = ?, progress = coalesce(?, progress),"
    " checkpoint = coalesce(?, checkpoint) WHERE seq = ?"
)
_REOPEN = (
    "UPDATE runs SET state = ?, attempt = ?, deaths = ?, releases = ?, flags = ?, ready_at = ?, error = ?,"
    " attempts = ?, worker = ?, checkpoint = coalesce(?, checkpoint), lease_until = NULL, progress = NULL"
    " WHERE seq = ?"
)


class Grants:
    """The verbs of holders. Each runs inside an open transaction of its shelf."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def lease(self, task: str, limit: int, lease_s: float, worker: str, now: float) -> list[Lease]:
        """Grant up to `limit` ready jobs, most urgent first."""
        shelf = self._shelf
        queue = shelf.index.by_name.get(task)
        if queue is None or queue.paused or limit <= 0 or not queue.queued:
            return []
        shelf.touch(queue)
        seqs, odd = queue.take(limit, now)
        if not seqs:
            return []
        until = now + lease_s
        again = self._grant_odd(odd, until, worker, now)
        jobs = self._jobs(seqs, again, task)
        leases: list[Lease] = []
        runs: list[Row] = []
        for seq in seqs:
            lease = again.get(seq) if again else None
            if lease is None:
                job = jobs[seq]
                lease = Lease(job, 1, 1, until, worker, now, job.run_at)
                runs.append((seq, _RUNNING, 1, 1, 0, 0, 0, job.run_at, until, now, worker, None, None, None))
            leases.append(lease)
        if runs:
            shelf.connection.executemany(INSERT_RUN, runs)
        if shelf.index.chains:
            for seq, lease in zip(seqs, leases, strict=True):
                if lease.job.ordering_key is not None:
                    queue.granted(lease.job, seq)
        held = [Held(seq, queue, lease) for seq, lease in zip(seqs, leases, strict=True)]
        shelf.hold(held)
        shelf.journal.undo_by(shelf.let_go, held)
        shelf.soonest_until = min(shelf.soonest_until, until)
        queue.queued -= len(held)
        queue.running += len(held)
        if shelf.listening:
            for lease in leases:
                shelf.tell(lease.job.id, task, State.RUNNING)
        return leases

    def _grant_odd(self, odd: list[int], until: float, worker: str, now: float) -> dict[int, Lease]:
        # Jobs beside the line: most have a runs row already, those that only came out of order do not.
        shelf = self._shelf
        granted: dict[int, Lease] = {}
        updates: list[Row] = []
        inserts: list[Row] = []
        for seq in odd:
            shelf.index.unwatch_end(seq)
            shelf.cache.pop(seq)
            row = shelf.row(SELECT_GRANTABLE, seq)
            assert row is not None
            name = shelf.index.by_number[row[2]].name
            job, run = job_of(row, shelf.mint.text(row[1], seq), name), run_of(row)
            lease = granted[seq] = lease_of(job, run, until=until, worker=worker, now=now)
            if run is None:
                inserts.append(
                    (seq, _RUNNING, 1, 1, 0, 0, 0, job.run_at, until, now, worker, None, None, None)
                )
            else:
                updates.append((lease.attempt, lease.fence, until, now, worker, seq))
        if inserts:
            shelf.connection.executemany(INSERT_RUN, inserts)
        if updates:
            shelf.connection.executemany(_GRANT_AGAIN, updates)
        return granted

    def _jobs(self, seqs: list[int], known: dict[int, Lease], task: str) -> dict[int, Job]:
        jobs = self._shelf.cache.take(seqs)
        if len(jobs) < len(seqs):
            missing = [seq for seq in seqs if seq not in jobs and seq not in known]
            if missing:
                self._read(missing, jobs, task)
        return jobs

    def _read(self, missing: list[int], jobs: dict[int, Job], task: str) -> None:
        connection, text = self._shelf.connection, self._shelf.mint.text
        low, high = min(missing), max(missing)
        if high - low < 2 * len(missing):  # neighbours: one walk along the table
            wanted = set(missing)
            for row in connection.execute(_SELECT_JOBS, (low, high)):
                if row[0] in wanted:
                    jobs[row[0]] = job_of(row, text(row[1], row[0]), task)
            return
        for seq in missing:
            for row in connection.execute(SELECT_JOB, (seq,)):
                jobs[seq] = job_of(row, text(row[1], seq), task)

    def extend(self, claims: Sequence[Claim], lease_s: float, now: float) -> list[Hold]:
        """Renew leases and store progress; answer in order."""
        shelf = self._shelf
        holds: list[Hold] = []
        updates: list[Row] = []
        until = now + lease_s
        for claim in claims:
            held = shelf.running.get(claim.job_id)
            if held is None or held.lease.fence != claim.fence or held.lease.until <= now:
                holds.append(Hold.LOST)
                continue
            updates.append((until, claim.progress, claim.checkpoint, held.seq))
            lease = held.lease._replace(until=until)
            if claim.checkpoint is not None:
                self._name_checkpoint(held, claim.checkpoint)
                lease = lease._replace(checkpoint=claim.checkpoint)
            shelf.running[claim.job_id] = held._replace(lease=lease)
            shelf.journal.undo_by(shelf.running.__setitem__, claim.job_id, held)
            holds.append(Hold.CANCEL if held.lease.cancel_requested else Hold.HELD)
        if updates:
            shelf.connection.executemany(_EXTEND, updates)
            shelf.soonest_until = min(shelf.soonest_until, until)
        return holds

    def _name_checkpoint(self, held: Held, checkpoint: bytes | None) -> None:
        """Store which blobs a job names with another checkpoint, or with none any more."""
        lease = held.lease
        if named(lease.checkpoint) or named(checkpoint):
            self._shelf.rename_blobs(held.seq, (lease.job.payload, checkpoint))

    def forgive(self, since: float, now: float) -> None:
        """Move the ends of the leases that held at `since` by the time until `now`."""
        shelf = self._shelf
        updates: list[Row] = []
        for job_id, held in list(shelf.running.items()):
            if held.lease.until < since:
                continue
            until = held.lease.until + (now - since)
            updates.append((until, None, None, held.seq))
            shelf.running[job_id] = held._replace(lease=held.lease._replace(until=until))
            shelf.journal.undo_by(shelf.running.__setitem__, job_id, held)
        if updates:
            shelf.connection.executemany(_EXTEND, updates)

    def commit(self, transitions: Sequence[Transition]) -> list[bool]:
        """Apply transitions whose fence is current; answer in order."""
        shelf, running = self._shelf, self._shelf.running
        verdicts: list[bool] = []
        ended: list[Held] = []
        results: list[Row] = []
        reopened: list[tuple[Held, Transition]] = []
        owed: list[tuple[int, str, float]] = []
        listening, minded, succeeded = shelf.listening, shelf.index.minds_endings, State.SUCCEEDED
        for step in transitions:
            held = running.get(step.job_id)
            if held is None or held.lease.fence != step.fence:
                verdicts.append(False)
                continue
            verdicts.append(True)
            del running[step.job_id]
            ended.append(held)
            if held.lease.cancel_requested:
                step = cancelled_instead(step, held.lease)
            if minded or step.charge is not None or held.lease.checkpoint is not None:
                self._mind(held, step)
            if step.state is succeeded:
                results.append(_result_row(held, step, _SUCCEEDED, owed))
                if listening:
                    shelf.tell(step.job_id, held.queue.name, step.state, Settled(held.lease, step))
                continue
            settled = None
            if step.state in FINAL:
                settled = Settled(held.lease, step)
                results.append(_result_row(held, step, STATE_NUMBERS[step.state], owed))
                if step.state is State.DEAD:
                    shelf.touch(held.queue)
                    held.queue.dead += 1
            else:
                reopened.append((held, step))
            shelf.tell(step.job_id, held.queue.name, step.state, settled)
        shelf.journal.undo_by(shelf.hold, ended)
        self._count_ended(ended)
        if results:
            self._delete_runs([row[0] for row in results])
            shelf.store_results(results)
        if owed:
            shelf.deliveries.owe(owed)
        if reopened:
            self._reopen(reopened)
        return verdicts

    def _mind(self, held: Held, step: Transition) -> None:
        # What the end of a run means to others: its tenant's account and bound, its ordering key, its input,
        # and the blobs of its checkpoint.
        shelf, index, queue, lease = self._shelf, self._shelf.index, held.queue, held.lease
        if step.charge is not None:
            shelf.deadly.charge(lease.job, step.charge, step.at)
        if step.state in FINAL:
            self._name_checkpoint(held, None)
        queue.fair.settle(held.seq, step.event, step.at - lease.leased_at)
        if queue.reserve.ended(lease.job.priority):
            shelf.rung.add(queue.name)
        if index.shares.bounded and index.shares.ended(lease.job.tenant):
            shelf.rung.update(other.name for other in index.by_number.values() if other.queued)
        following = index.leave_chain if step.state in FINAL else index.rest_chain
        if following(queue, held.seq, lease.job):
            shelf.rung.add(queue.name)

    def _delete_runs(self, seqs: list[int]) -> None:
        low, high = min(seqs), max(seqs)
        if high - low + 1 == len(seqs):  # what ran together was mostly leased together: one statement
            self._shelf.connection.execute(DELETE_RUNS, (low, high))
        else:
            self._shelf.connection.executemany(DELETE_RUN, [(seq,) for seq in seqs])

    def _count_ended(self, ended: list[Held]) -> None:
        # As if all were final; _reopen adds its own again.
        self._shelf.index.holdings.add([held.lease.job for held in ended], -1)
        queue, count, size = None, 0, 0
        for held in ended:
            if held.queue is not queue:
                if queue is not None:
                    queue.running -= count
                    queue.bytes -= size
                queue, count, size = held.queue, 0, 0
                self._shelf.touch(queue)
            job = held.lease.job
            count += 1
            size += len(job.payload) + len(job.metadata)
        if queue is not None:
            queue.running -= count
            queue.bytes -= size

    def _reopen(self, reopened: list[tuple[Held, Transition]]) -> None:
        shelf, index = self._shelf, self._shelf.index
        updates: list[Row] = []
        index.holdings.add([held.lease.job for held, _ in reopened])
        for held, step in reopened:
            queue, job = held.queue, held.lease.job
            queue.bytes += job.size
            if step.checkpoint is not None:
                self._name_checkpoint(held, step.checkpoint)
            if step.state is State.QUEUED:
                queue.queued += 1
                shelf.rung.add(queue.name)
                queue.place(spot_of(job, held.seq, step.ready_at))
                index.watch_end(held.seq, end_of(job))
            else:
                if step.state is State.RETRYING:
                    queue.retrying += 1
                else:
                    queue.scheduled += 1
                index.wait_later(held.seq, step.ready_at, end_of(job))
            flags = flags_of(step.suspect, held.lease.cancel_requested)
            updates.append(
                (
                    STATE_NUMBERS[step.state],
                    step.attempt,
                    step.deaths,
                    step.releases,
                    flags,
                    step.ready_at,
                    error_bytes(step.error),
                    attempts_bytes(step.attempts),
                    step.worker or held.lease.worker,
                    step.checkpoint,
                    held.seq,
                )
            )
        shelf.connection.executemany(_REOPEN, updates)


def _result_row(held: Held, step: Transition, state: int, owed: list[tuple[int, str, float]]) -> Row:
    """Return the row of results, and note the callback that it owes."""
    lease = held.lease
    if lease.job.callback_url is not None:
        owed.append((held.seq, lease.job.callback_url, step.at))
    return (
        held.seq,
        state,
        step.attempt,
        step.fence,
        step.deaths,
        step.releases,
        flags_of(step.suspect, lease.cancel_requested) | step.degraded << DEGRADED_SHIFT,
        lease.ready_at,
        step.at,
        lease.leased_at,
        step.worker or lease.worker,
        None if step.error is None else error_bytes(step.error),
        attempts_bytes(step.attempts) if step.attempts else None,
        step.output,
    )
