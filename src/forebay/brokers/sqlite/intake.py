"""Intake: storing jobs once: enqueue and redrive."""

from collections.abc import Sequence

from forebay.brokers.sqlite.due_lane import DueLane
from forebay.brokers.sqlite.rows import INSERT_JOB, INSERT_RUN, STATE_NUMBERS, STATES, Row, end_of
from forebay.brokers.sqlite.shelf import Shelf
from forebay.brokers.sqlite.task_queue import spot_of
from forebay.core.job import Job, Receipt, Verdict
from forebay.core.lifecycle import State
from forebay.core.many import getter, size_of
from forebay.core.settle import joinable
from forebay.errors import InvalidError

_STATE = (
    "SELECT j.ms, j.seq, j.body_hash, coalesce(f.state, r.state, 1) FROM jobs j"
    " LEFT JOIN results f ON f.seq = j.seq LEFT JOIN runs r ON r.seq = j.seq"
)
_BY_KEY = f"{_STATE} WHERE j.tenant = ? AND j.idempotency_key = ?"
_BY_SEQ = f"{_STATE} WHERE j.seq = ?"
_BY_JOIN = (
    f"{_STATE.replace('j.body_hash', 'n.body_hash', 1)} JOIN joins n ON n.seq = j.seq"
    " WHERE n.tenant = ? AND n.idempotency_key = ?"
)
_TWIN = "SELECT seq FROM jobs WHERE fingerprint = ? ORDER BY seq DESC LIMIT 1"
_SCHEDULED = STATE_NUMBERS[State.SCHEDULED]
# What makes jobs enter their line together, and what must be None of each that stands for itself alone.
_KIND = getter("task", "priority", "tenant", "idempotency_key", "ordering_key", "fingerprint")
_APART = (None, None, None)
_ID, _RUN_AT = getter("id"), getter("run_at")
_PAYLOAD = 3  # place of it in a row that is inserted


class Intake:
    """The verbs that make rows of jobs. Each runs inside an open transaction of its shelf."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._rows: list[Row] = []  # not yet written
        self._runs: list[Row] = []  # of the scheduled ones among them
        self._keys: set[tuple[str, str]] = set()  # of those

    def enqueue(self, jobs: Sequence[Job], now: float) -> list[Receipt]:
        """Store each job once; answer in order."""
        kinds = set(map(_KIND, jobs))
        if len(kinds) == 1 and kinds.pop()[-len(_APART) :] == _APART and max(map(_RUN_AT, jobs)) <= now:
            receipts = self._enqueue_alike(jobs)
            if receipts is not None:
                return receipts
        return self._enqueue_each(jobs, now)

    def _enqueue_alike(self, jobs: Sequence[Job]) -> list[Receipt] | None:
        """Store new jobs of one task, priority and tenant that may run now and that nothing is known of by a
        key: what nearly all groups are. None, and nothing is stored, when some of them may be stored already.
        """
        shelf = self._shelf
        read = map(shelf.mint.read, map(_ID, jobs))
        places = [place for place in read if place is not None]
        if len(places) < len(jobs):
            return None
        seqs = [seq for _, seq in places]
        if seqs[0] <= shelf.stored_seq or sorted(set(seqs)) != seqs:
            return None
        shelf.stored_seq = seqs[-1]
        number = shelf.queue(jobs[0].task).number
        self._rows = [(seq, ms, number, *job[2:]) for (ms, seq), job in zip(places, jobs, strict=True)]
        self._runs, self._keys = [], set()
        self._write()
        shelf.index.holdings.add(jobs)
        self._enter_line([*zip(seqs, jobs, strict=True)])
        stored, queued = Verdict.STORED, State.QUEUED
        return [tuple.__new__(Receipt, (stored, job.id, queued)) for job in jobs]

    def _enqueue_each(self, jobs: Sequence[Job], now: float) -> list[Receipt]:
        shelf, read = self._shelf, self._shelf.mint.read
        stored, queued = Verdict.STORED, State.QUEUED
        receipts: list[Receipt] = []
        entered: list[tuple[int, Job]] = []
        rows = self._rows = []
        self._runs, self._keys = [], set()
        queue = None
        scheduled = 0
        for job in jobs:
            place = read(job.id)
            if place is None:
                raise InvalidError(f"job id {job.id[:60]!r} was not given out by this store")
            ms, seq = place
            if job.idempotency_key is not None or seq <= shelf.stored_seq or job.fingerprint is not None:
                known = self._known(job, seq) or self._joined(job, now)
                if known is not None:
                    receipts.append(known)
                    continue
            if seq > shelf.stored_seq:
                shelf.stored_seq = seq
            if queue is None or queue.name != job.task:
                queue = shelf.queue(job.task)
            rows.append((seq, ms, queue.number, *job[2:]))
            entered.append((seq, job))
            state = queued
            if job.run_at > now:
                state = State.SCHEDULED
                scheduled += 1
                self._runs.append(
                    (seq, _SCHEDULED, 0, 0, 0, 0, 0, job.run_at, None, None, "", None, None, None)
                )
            if job.idempotency_key is not None:
                self._keys.add((job.tenant, job.idempotency_key))
            receipts.append(Receipt(stored, job.id, state))
        self._write()
        shelf.index.holdings.add([job for _, job in entered])
        self._enter(entered, scheduled, now)
        return receipts

    def recall(self, job: Job) -> Receipt | None:
        """Return what `enqueue` would answer for a job whose key is known, else None. Reads only."""
        if job.idempotency_key is None:
            return None
        row = self._by_key(job.tenant, job.idempotency_key)
        return None if row is None else self._receipt(row, job)

    def _by_key(self, tenant: str, key: str) -> Row | None:
        return self._shelf.row(_BY_KEY, tenant, key) or self._shelf.row(_BY_JOIN, tenant, key)

    def edit(self, job_id: str, payload: bytes, now: float) -> bool:
        """Keep a payload for the redrive of a dead job."""
        shelf = self._shelf
        found = shelf.find_visible(job_id, now)
        if found is None or found.record.standing.state is not State.DEAD:
            return False
        shelf.connection.execute("INSERT OR REPLACE INTO edits VALUES (?, ?)", (found.seq, payload))
        shelf.rename_blobs(found.seq, (found.record.job.payload, payload))
        return True

    def redrive(self, job_id: str, job: Job, now: float) -> Receipt | None:
        """Store the successor of a dead job, linked both ways."""
        shelf = self._shelf
        found = shelf.find_visible(job_id, now)
        if found is None or found.record.standing.state is not State.DEAD:
            return None
        successor = found.record.redriven_as
        stands = None if successor is None else shelf.find_id(successor)
        if stands is not None:
            return Receipt(Verdict.REPLAYED, stands.record.job.id, stands.record.standing.state)
        receipt = self.enqueue([job._replace(redriven_from=job_id)], now)[0]
        if receipt.verdict is Verdict.STORED:
            shelf.connection.execute(
                "INSERT OR REPLACE INTO redrives VALUES (?, ?)", (found.seq, receipt.job_id)
            )
        return receipt

    def _write(self) -> None:
        if self._rows:
            self._shelf.connection.executemany(INSERT_JOB, self._rows)
            self._shelf.name_blobs(self._rows, _PAYLOAD)
        if self._runs:
            self._shelf.connection.executemany(INSERT_RUN, self._runs)
        # Emptied in place: enqueue holds on to the list of rows.
        self._rows.clear()
        self._runs.clear()
        self._keys.clear()

    def _known(self, job: Job, seq: int) -> Receipt | None:
        # Rows of this call are written first where they could be what is looked for.
        shelf, key = self._shelf, job.idempotency_key
        if key is not None:
            if (job.tenant, key) in self._keys:
                self._write()
            row = self._by_key(job.tenant, key)
            if row is not None:
                return self._receipt(row, job)
        if seq > shelf.stored_seq:
            return None
        self._write()
        row = shelf.row(_BY_SEQ, seq)
        if row is None and seq < shelf.floor:
            shelf.move_floor(seq)  # an id that was given out long before it is stored
        return None if row is None else self._receipt(row, job)

    def _joined(self, job: Job, now: float) -> Receipt | None:
        """Return the receipt of the equal job that this one joins."""
        if job.fingerprint is None or job.redriven_from is not None:
            return None
        self._write()  # a twin may be among the rows of this call
        row = self._shelf.row(_TWIN, job.fingerprint)
        if row is None:
            return None
        found = self._shelf.find_seq(row[0])
        if found is None or self._shelf.is_past(found.record, now):
            return None
        twin, standing = found.record.job, found.record.standing
        if not joinable(standing.state, standing.cancel_requested, standing.finished_at, twin, now):
            return None
        if job.idempotency_key is not None:
            join = (job.tenant, job.idempotency_key, job.body_hash, row[0])
            self._shelf.connection.execute("INSERT INTO joins VALUES (?,?,?,?)", join)
        return Receipt(Verdict.JOINED, twin.id, standing.state)

    def _receipt(self, row: Row, job: Job) -> Receipt:
        ms, seq, body_hash, state = row
        same = body_hash == job.body_hash
        verdict = Verdict.REPLAYED if same else Verdict.CONFLICT
        return Receipt(verdict, self._shelf.mint.text(ms, seq), STATES[state])

    def _enter(self, entered: list[tuple[int, Job]], scheduled: int, now: float) -> None:
        # Neighbours of one task and one priority, which most are, enter their line together.
        kinds = {(job.task, job.priority, job.tenant, job.ordering_key) for _, job in entered}
        if scheduled == 0 and len(kinds) == 1 and entered[0][1].ordering_key is None:
            self._enter_line(entered)
            return
        group: list[tuple[int, Job]] = []
        kind = ("", -1, "")
        for seq, job in entered:
            if job.ordering_key is not None:
                queue = self._shelf.index.by_name[job.task]
                self._shelf.index.enter_chain(queue, seq, job.tenant, job.ordering_key)
            if job.run_at > now:
                self._enter_later(seq, job)
                continue
            if job.ordering_key is not None:
                self._enter_beside(seq, job)
                continue
            if (job.task, job.priority, job.tenant) != kind:
                self._enter_line(group)
                group, kind = [], (job.task, job.priority, job.tenant)
            group.append((seq, job))
        self._enter_line(group)

    def _enter_later(self, seq: int, job: Job) -> None:
        shelf = self._shelf
        queue = shelf.index.by_name[job.task]
        shelf.touch(queue)
        queue.jobs += 1
        queue.bytes += job.size
        queue.scheduled += 1
        shelf.spans.note(queue.number, job.tenant, (seq,))
        shelf.index.wait_later(seq, job.run_at, end_of(job))
        shelf.tell(job.id, job.task, State.SCHEDULED)

    def _enter_beside(self, seq: int, job: Job) -> None:
        shelf = self._shelf
        queue = shelf.index.by_name[job.task]
        shelf.touch(queue)
        queue.jobs += 1
        queue.bytes += job.size
        queue.queued += 1
        shelf.spans.note(queue.number, job.tenant, (seq,))
        queue.place(spot_of(job, seq, job.run_at))
        shelf.index.watch_end(seq, end_of(job))
        shelf.rung.add(job.task)
        shelf.tell(job.id, job.task, State.QUEUED)

    def _enter_line(self, group: list[tuple[int, Job]]) -> None:
        if not group:
            return
        shelf = self._shelf
        first = group[0][1]
        queue = shelf.index.by_name[first.task]
        lane = queue.lane(first.priority, first.tenant)
        if isinstance(lane, DueLane):
            for seq, job in group:
                self._enter_beside(seq, job)
            return
        shelf.touch(queue)
        shelf.journal.mark(lane)
        seqs = [seq for seq, _ in group]
        shelf.spans.note(queue.number, first.tenant, seqs)
        size = size_of([job for _, job in group])
        ends = [
            job.expires_at if job.deadline_at is None and job.expires_at is not None else end_of(job)
            for _, job in group
        ]
        if lane.extend(seqs, [job.run_at for _, job in group], ends):
            shelf.cache.put(group, size)
            shelf.journal.undo_by(shelf.cache.drop, seqs)
        else:
            for (seq, job), end in zip(group, ends, strict=True):
                if not lane.append(seq, job.run_at, end):
                    shelf.index.watch_end(seq, end)
        queue.jobs += len(group)
        queue.queued += len(group)
        queue.bytes += size
        shelf.rung.add(first.task)
        if shelf.listening:
            for _, job in group:
                shelf.tell(job.id, job.task, State.QUEUED)
