"""Shelf: where the Ledger keeps its jobs, each in exactly the places its state asks for.

The only file that changes an index or a count. `put` and `take` are each other's mirror; whatever changes
a job takes it out of its place, changes it, and puts it back.
"""

from collections import defaultdict
from functools import partial

from forebay.core import ledger_blobs
from forebay.core.chains import Chains
from forebay.core.fairness import FairShare, Shares
from forebay.core.job import Job, Lease, Receipt, Transition, Verdict
from forebay.core.ledger_entry import Entry, EntryLine, TaskQueue
from forebay.core.ledger_index import Moment, MomentHeap, SortedKeys, Twins
from forebay.core.ledger_outbox import OutTray
from forebay.core.lifecycle import FINAL, WAITING, Event, State, next_state
from forebay.core.reserve import Reserve
from forebay.core.retention import Keeping, Retention
from forebay.core.settle import waiting_error
from forebay.core.tenant import Held
from forebay.core.turns import Order

Key = tuple[str, str]  # tenant, idempotency key


class Shelf:
    """Every job, and one index for each question that time or a caller asks."""

    def __init__(self) -> None:
        self.jobs: dict[str, Entry] = {}
        self.keys: dict[Key, tuple[str, bytes]] = {}  # -> job id, and the body hash it came with
        self.twins = Twins()
        self.queues: dict[str, TaskQueue] = {}
        self.blobs: ledger_blobs.Holders = {}
        self.orders: dict[str, Order] = {}  # of tasks that do not go by arrival
        self.shares = Shares()
        self.fairs: defaultdict[str, FairShare] = defaultdict(lambda: FairShare(self.shares))
        self.reserves: defaultdict[str, Reserve] = defaultdict(Reserve)  # by task
        self.chains: Chains[str] = Chains()
        self.freed: set[str] = set()  # tasks of which a job may be granted that could not before
        self.held: dict[str, Held] = {}  # open jobs and bytes of each tenant that has some
        self.ids: SortedKeys[str] = SortedKeys()
        self.due = MomentHeap(self._is_due)  # scheduled and retrying, by ready_at
        self.ends = MomentHeap(self._ends)  # waiting with a ttl or deadline, by the earlier
        self.leases = MomentHeap(self._is_leased)  # running, by lease_until
        self.finals = MomentHeap(self._is_kept)  # final, by when it is past retention
        self.keeping = Keeping(Retention(86_400.0, 86_400.0))
        self.tray = OutTray()  # what callbacks are owed

    def queue(self, task: str) -> TaskQueue:
        """Return the task's queue, made when there is none."""
        queue = self.queues.get(task)
        if queue is None:
            order, queued = self.orders.get(task, Order.ARRIVAL), partial(self._is_queued, task)
            queue = TaskQueue(task, order, self.fairs[task], self.reserves[task], queued)
            self.queues[task] = queue
        return queue

    def drop_queue_if_empty(self, queue: TaskQueue) -> None:
        """Forget a task that has no jobs, is not paused and does not drain."""
        if not queue.paused and not queue.draining and not any(queue.counts.values()):
            self.queues.pop(queue.name, None)

    def add(self, entry: Entry) -> None:
        """Take in a new job."""
        job = entry.job
        self.jobs[job.id] = entry
        if job.idempotency_key is not None:
            self.name(entry, (job.tenant, job.idempotency_key), job.body_hash)
        self.twins.add(job)
        self.ids.add(job.id)
        self.name_blobs(job.id, job.payload)
        entry.queue.bytes += entry.size
        self._hold(job.tenant, 1, entry.size)
        self.enter(entry)

    def enter(self, entry: Entry) -> None:
        """Put a job in its place, behind the earlier ones of its ordering key."""
        if entry.chain is not None:
            displaced = self.chains.enter(entry.chain, entry.job.id)
            if displaced is not None and self.jobs[displaced].state is State.QUEUED:
                self.step_out(self.jobs[displaced])
        self.put(entry)

    def discard(self, entry: Entry) -> None:
        """Forget a final job."""
        job = entry.job
        self.take(entry)
        del self.jobs[job.id]
        for key in entry.keys:
            del self.keys[key]
        self.twins.drop(job)
        self.ids.remove(job.id)
        self.unname_blobs(entry)
        self.tray.drop(job.id)
        self.drop_queue_if_empty(entry.queue)

    def by_key(self, job: Job) -> Receipt | None:
        """Return the answer to a submission whose idempotency key is known, None to any other."""
        if job.idempotency_key is None:
            return None
        known = self.keys.get((job.tenant, job.idempotency_key))
        return None if known is None else self._receipt(self.jobs[known[0]], known[1], job)

    def receipt(self, entry: Entry, job: Job) -> Receipt:
        """Return the answer to a submission that finds `entry` in its place."""
        return self._receipt(entry, entry.job.body_hash, job)

    @staticmethod
    def _receipt(entry: Entry, body_hash: bytes, job: Job) -> Receipt:
        verdict = Verdict.REPLAYED if body_hash == job.body_hash else Verdict.CONFLICT
        return Receipt(verdict, entry.job.id, entry.state)

    def name(self, entry: Entry, key: Key, body_hash: bytes) -> None:
        """Let an idempotency key mean this job."""
        self.keys[key] = (entry.job.id, body_hash)
        entry.keys.append(key)

    def put(self, entry: Entry) -> None:
        """Put the job where its state asks for it."""
        state, queue, job_id = entry.state, entry.queue, entry.job.id
        queue.counts[state] += 1
        if state is State.QUEUED:
            self.line_up(entry)
            queue.ages.add((entry.ready_at, job_id))
        elif state is State.RUNNING:
            assert entry.lease_until is not None
            self.leases.add((entry.lease_until, job_id))
            return
        elif state in FINAL:
            entry.gone_at = self.keeping.gone_at(entry.job.task, state, entry.finished_at)
            self.finals.add((entry.gone_at, job_id))
            queue.bytes -= entry.size
            self._hold(entry.job.tenant, -1, -entry.size)
            return
        else:
            self.due.add((entry.ready_at, job_id))
        if entry.waits_until is not None:
            self.ends.add((entry.waits_until, job_id))

    def take(self, entry: Entry) -> None:
        """Take the job out of the place it was put into. Change it before the next `put`, and only then."""
        state, queue = entry.state, entry.queue
        queue.counts[state] -= 1
        if state is State.QUEUED:
            self.step_out(entry)
            queue.ages.live -= 1
        elif state is State.RUNNING:
            self.leases.live -= 1
            return
        elif state in FINAL:
            self.finals.live -= 1
            return
        else:
            self.due.live -= 1
        if entry.waits_until is not None:
            self.ends.live -= 1

    def line_up(self, entry: Entry) -> None:
        """Put a queued job in its line, unless it waits for an earlier one of its ordering key."""
        queue, job = entry.queue, entry.job
        if entry.chain is not None and self.chains.head(entry.chain) != job.id:
            return
        line = queue.lines.get((job.priority, job.tenant))
        if line is None:
            line = queue.lines[job.priority, job.tenant] = EntryLine(self.jobs)
        entry.order = queue.key(job, entry.ready_at)
        entry.stale = False
        entry.line = line
        line.order.add(entry.order)

    def step_out(self, entry: Entry) -> None:
        """Take a queued job out of its line, if it stands in one."""
        line = entry.line
        if line is None:
            return
        (line.stale if entry.stale else line.order).remove(entry.order)
        entry.line = None
        self.drop_line_if_empty(entry.queue, entry.job, line)

    def drop_line_if_empty(self, queue: TaskQueue, job: Job, line: EntryLine) -> None:
        """Forget a line that nobody stands in."""
        if not line:
            queue.lines.pop((job.priority, job.tenant), None)

    def let_go(self, job_id: str | None) -> None:
        """Let the job that has become the head of its chain into line, if it is ready."""
        entry = None if job_id is None else self.jobs[job_id]
        if entry is not None and entry.state is State.QUEUED and entry.line is None:
            self.line_up(entry)
            self.freed.add(entry.queue.name)

    def _note_room(self, entry: Entry) -> None:
        """Take note that a job runs no more."""
        if entry.queue.reserve.ended(entry.job.priority):
            self.freed.add(entry.queue.name)
        if self.shares.bounded and self.shares.ended(entry.job.tenant):
            self.freed.update(name for name, queue in self.queues.items() if queue.counts[State.QUEUED])

    def grant(self, entry: Entry, worker: str, now: float, until: float) -> Lease:
        """Lease a queued job that has already left its line: the shortest way, since every job goes it."""
        queue = entry.queue
        if entry.line is not None:
            self.drop_line_if_empty(queue, entry.job, entry.line)
            entry.line = None
        if entry.chain is not None:
            self.chains.run(entry.chain, entry.job.id)
        queue.counts[State.QUEUED] -= 1
        queue.counts[State.RUNNING] += 1
        queue.ages.live -= 1
        if entry.waits_until is not None:
            self.ends.live -= 1
        entry.state = State.RUNNING
        entry.attempt += 1
        entry.fence += 1
        entry.worker = worker
        entry.started_at = now
        entry.lease_until = until
        self.leases.add((until, entry.job.id))
        return entry.lease()

    def renew(self, entry: Entry, until: float) -> None:
        """Give a running job another end of its lease."""
        if until != entry.lease_until:
            self.take(entry)
            entry.lease_until = until
            self.put(entry)

    def end_leases(self, now: float) -> int:
        """End every lease that is not over yet; return how many."""
        held = [e for e in self.jobs.values() if e.lease_until is not None and e.lease_until > now]
        for entry in held:
            self.renew(entry, now)
        return len(held)

    def settle(self, entry: Entry, transition: Transition) -> None:
        """Store what was decided about a running job."""
        self.take(entry)
        assert entry.started_at is not None
        entry.queue.fair.settle(entry.job.id, transition.event, transition.at - entry.started_at)
        self._note_room(entry)
        step = self.chains.leave if transition.state in FINAL else self.chains.rest
        following = None if entry.chain is None else step(entry.chain, entry.job.id)
        entry.state = transition.state
        entry.attempt = transition.attempt
        entry.deaths = transition.deaths
        entry.releases = transition.releases
        entry.suspect = transition.suspect
        entry.lease_until = entry.cancel_at = None
        entry.progress = None
        entry.output = transition.output
        entry.error = transition.error
        entry.attempts = transition.attempts
        entry.degraded = transition.degraded
        if transition.worker:
            entry.worker = transition.worker
        if transition.state in FINAL:
            entry.finished_at = transition.at
            self.name_blobs(entry.job.id, transition.output)
            ledger_blobs.keep_checkpoint(self.blobs, entry, None)
            self.tray.owe(entry.job, transition.at)
        else:
            entry.ready_at = transition.ready_at
            if transition.checkpoint is not None:
                ledger_blobs.keep_checkpoint(self.blobs, entry, transition.checkpoint)
        self.put(entry)
        self.let_go(following)

    def promote(self, entry: Entry) -> None:
        """Make a scheduled or retrying job queued."""
        self.take(entry)
        entry.state = next_state(entry.state, Event.DUE)
        self.put(entry)

    def end_waiting(self, entry: Entry, event: Event, now: float) -> None:
        """End a waiting job."""
        self.take(entry)
        entry.state = next_state(entry.state, event)
        entry.finished_at = now
        entry.suspect = False
        ledger_blobs.keep_checkpoint(self.blobs, entry, None)
        entry.error = waiting_error(event, entry.attempt)
        self.tray.owe(entry.job, now)
        following = None if entry.chain is None else self.chains.leave(entry.chain, entry.job.id)
        self.put(entry)
        self.let_go(following)

    def name_blobs(self, job_id: str, text: bytes | None) -> None:
        """Remember which blobs a payload or an output names."""
        ledger_blobs.name(self.blobs, job_id, text)

    def unname_blobs(self, entry: Entry) -> None:
        """Forget which blobs a job names."""
        ledger_blobs.unname(self.blobs, entry)

    def _hold(self, tenant: str, jobs: int, size: int) -> None:
        held = self.held.get(tenant, Held())
        self.held[tenant] = Held(held.jobs + jobs, held.bytes + size)
        if self.held[tenant].jobs == 0:
            del self.held[tenant]

    def _is_queued(self, task: str, moment: Moment) -> bool:
        entry = self.jobs.get(moment[1])
        if entry is None or entry.job.task != task:  # it may have moved
            return False
        return entry.state is State.QUEUED and entry.ready_at == moment[0]

    def _is_due(self, moment: Moment) -> bool:
        entry = self.jobs.get(moment[1])
        if entry is None or entry.ready_at != moment[0]:
            return False
        return entry.state is State.SCHEDULED or entry.state is State.RETRYING

    def _ends(self, moment: Moment) -> bool:
        entry = self.jobs.get(moment[1])
        return entry is not None and entry.state in WAITING and entry.waits_until == moment[0]

    def _is_leased(self, moment: Moment) -> bool:
        entry = self.jobs.get(moment[1])
        return entry is not None and entry.lease_until == moment[0]

    def _is_kept(self, moment: Moment) -> bool:
        entry = self.jobs.get(moment[1])
        return entry is not None and entry.gone_at == moment[0]
