"""WatchedBook: a store of jobs with a Checker looking over its shoulder at every verb."""

from collections.abc import Callable, Sequence

from forebay.core.book import Book
from forebay.core.job import AGEING_S, CancelVerdict, Claim, Hold, Job, Lease, Receipt, Sweep, Transition
from forebay.core.lifecycle import FINAL, State
from forebay.core.retry import RetryPolicy
from forebay.sim.checker import Checker
from forebay.sim.invariants import BrokenError


class WatchedBook:
    """The verbs that nodes, clients and the janitor use. Facts go to the checker before the records that
    changed are read, so that each is judged by what held before it.
    """

    def __init__(
        self,
        book: Book,
        checker: Checker,
        *,
        policy_of: Callable[[str], RetryPolicy],
        true_now: Callable[[], float],
    ) -> None:
        self.book = book
        self.checker = checker
        self.stored = 0
        self.open: dict[str, None] = {}  # jobs that have not ended, as last seen
        self.tasks: dict[str, None] = {}
        self._policy_of = policy_of
        self._true_now = true_now
        self._now = 0.0  # of the store: the largest it was told

    def new_id(self, now: float) -> str:
        """Return an id for one new job."""
        return self.book.new_id(self._tick(now))

    def enqueue(self, jobs: Sequence[Job], requests: Sequence[int], *, now: float) -> list[Receipt]:
        """Store jobs; `requests` are the submissions they come from."""
        receipts = self.book.enqueue(jobs, now=self._tick(now))
        for job, receipt, request in zip(jobs, receipts, requests, strict=True):
            self.checker.stored(job, receipt, request)
            self.tasks[job.task] = None
            self._look(receipt.job_id)
        self.stored = len(self.checker.jobs)
        return receipts

    def fill(self, task: str, queue_max: int) -> float:
        """Return the share of a queue of this size that waits there."""
        return self.book.depth(task, now=self._now).queued / queue_max

    def lease(self, task: str, *, limit: int, lease_s: float, worker: str, now: float) -> list[Lease]:
        """Grant leases."""
        leases = self.book.lease(task, limit=limit, lease_s=lease_s, worker=worker, now=self._tick(now))
        for lease in leases:
            self.checker.granted(lease, now=self._now)
        self.checker.queue_served(task, leases, limit=limit, now=self._now, ageing_s=AGEING_S)
        for lease in leases:
            self._look(lease.job.id)
        return leases

    def extend(self, claims: Sequence[Claim], *, lease_s: float, now: float) -> list[Hold]:
        """Renew leases."""
        answers = self.book.extend(claims, lease_s=lease_s, now=self._tick(now))
        for claim, answer in zip(claims, answers, strict=True):
            self.checker.renewed(claim.job_id, claim.fence, held=answer is not Hold.LOST, now=self._now)
            self._look(claim.job_id)
        return answers

    def commit(self, transitions: Sequence[Transition], *, now: float) -> list[bool]:
        """Store decisions."""
        applied = self.book.commit(transitions, now=self._tick(now))
        ended: dict[str, None] = {}  # by this very call
        for transition, done in zip(transitions, applied, strict=True):
            job_id = transition.job_id
            sight = self.checker.jobs.get(job_id)
            policy = RetryPolicy() if sight is None else self._policy_of(sight.record.job.task)
            if job_id in ended:
                if done:
                    raise BrokenError("L3", f"{job_id} was ended twice by one commit")
                continue
            self.checker.committed(transition, applied=done, now=self._true_now(), policy=policy)
            if done:
                ended[job_id] = None
        for transition in transitions:
            self._look(transition.job_id)
        return applied

    def cancel(self, job_id: str, *, now: float) -> CancelVerdict:
        """Cancel one job."""
        (verdict,) = self.book.cancel([job_id], now=self._tick(now))
        self._look(job_id)
        return verdict

    def sweep(self, *, limit: int, now: float) -> Sweep:
        """Do what time decides."""
        swept = self.book.sweep(limit=limit, now=self._tick(now))
        for job_id in (*swept.promoted, *swept.expired):
            self._look(job_id)
        return swept

    def reopened(self, book: Book, *, now: float) -> None:
        """The store was closed and opened: what it shows now may have changed in many steps."""
        self.book = book
        self._tick(now)
        for job_id in list(self.checker.jobs):
            record = book.get(job_id, now=self._now)
            if record is not None:
                self.checker.seen(record, now=self._now)
            else:
                self.checker.gone(job_id)
        self.stored = len(self.checker.jobs)
        self.open = {one: None for one in self.open if one in self.checker.jobs}

    def look_at_all(self) -> None:
        """Compare every record and count with what was seen."""
        self.checker.all_there(lambda job_id: self.book.get(job_id, now=self._now), now=self._now)
        states = (State.QUEUED, State.SCHEDULED, State.RETRYING, State.RUNNING, State.DEAD)
        kept: dict[State, int] = dict.fromkeys(states, 0)
        for task in self.tasks:
            depth = self.book.depth(task, now=self._now)
            kept[State.QUEUED] += depth.queued
            kept[State.SCHEDULED] += depth.scheduled
            kept[State.RETRYING] += depth.retrying
            kept[State.RUNNING] += depth.running
            kept[State.DEAD] += depth.dead
        self.checker.adds_up(kept=kept, stored=self.stored)

    def _look(self, job_id: str) -> None:
        record = self.book.get(job_id, now=self._now)
        if record is not None:
            self.checker.seen(record, now=self._now, exact=True)
            if record.standing.state in FINAL:
                self.open.pop(job_id, None)
            else:
                self.open[job_id] = None

    def _tick(self, now: float) -> float:
        self._now = max(self._now, now)
        return now
