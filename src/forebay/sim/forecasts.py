"""Forecasts: what jobs of a simulated world are told of their end, at submit and later, and the truth."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from forebay.core.actions import Ran
from forebay.core.book import Book
from forebay.core.estimator import Crew, Estimator, Eta
from forebay.core.job import Job, Lease, Transition
from forebay.core.lifecycle import FINAL, State
from forebay.core.task import TaskSpec
from forebay.sim.engine import Engine

LOOKED_AT_MAX = 8  # open jobs asked about at one look


class Foretold(NamedTuple):
    """One prediction and, once it ended, the truth."""

    job_id: str
    at: float
    eta: Eta
    live: bool
    true_s: float


class Forecasts:
    """The estimators of a world, fed as a node and a door feed them, and every prediction with its truth."""

    def __init__(self, specs: Iterable[TaskSpec], book: Book, engine: Engine, *, live_every_s: float) -> None:
        self.estimators = {spec.name: Estimator.of(spec) for spec in specs}
        self.scored: list[Foretold] = []
        self.silent = 0  # submissions that could be told nothing: nothing was measured
        self._book = book
        self._engine = engine
        self._open: dict[str, Job] = {}
        self._waiting: dict[str, list[tuple[float, Eta, bool]]] = {}
        self._turn = 0
        self._live_every_s = live_every_s
        if live_every_s > 0:
            engine.after(live_every_s, self._look)

    def watch(self, tasks: Iterable[str], crew: Crew) -> None:
        """A lane began: its replicas are these tasks'."""
        for task in tasks:
            self.estimators[task].crew = crew

    def stored(self, job: Job) -> None:
        """A submission was stored: tell when it will end."""
        now, estimator = self._engine.now, self.estimators[job.task]
        estimator.arrived(job.priority, 1, now=now)
        self._open[job.id] = job
        self._tell(job, live=False)

    def ran(self, runs: Sequence[Ran]) -> None:
        """Runs ended."""
        for ran in runs:
            self.estimators[ran.task].ran(items=ran.items, took_s=ran.took_s, size_b=ran.size_b)

    def settled(
        self, transitions: Sequence[Transition], leases: Sequence[Lease], applied: Sequence[bool]
    ) -> None:
        """Attempts ended."""
        now = self._engine.now
        for transition, lease, done in zip(transitions, leases, applied, strict=True):
            estimator = self.estimators[lease.job.task]
            if not done:
                continue
            if transition.state not in FINAL:
                estimator.settled(final=0, again=1, now=now)
                continue
            estimator.settled(final=1, now=now)
            job_id = transition.job_id
            self._open.pop(job_id, None)
            estimator.ended((job_id,), now=now)
            for at, eta, live in self._waiting.pop(job_id, ()):
                self.scored.append(Foretold(job_id, at, eta, live, now - at))

    def _look(self) -> None:
        self._engine.after(self._live_every_s, self._look)
        ids = list(self._open)
        step = max(1, len(ids) // LOOKED_AT_MAX)
        self._turn += 1
        for job_id in ids[self._turn % step :: step]:
            self._tell(self._open[job_id], live=True)

    def _tell(self, job: Job, *, live: bool) -> None:
        eta = self.place(job, live=live)
        if eta is None:
            self.silent += not live
            return
        now = self._engine.now
        self.estimators[job.task].told(job.id, eta, now=now, live=live)
        self._waiting.setdefault(job.id, []).append((now, eta, live))

    def place(self, job: Job, *, live: bool) -> Eta | None:
        """Return what a reader would be told of the job now."""
        now, estimator = self._engine.now, self.estimators[job.task]
        record = self._book.get(job.id, now=now)
        if record is None:
            return None
        standing = record.standing
        if standing.state is State.QUEUED:
            position = self._book.position(job.id, now=now) or 1
            return estimator.eta(
                position=position, now=now, priority=job.priority, size_b=job.size, live=live
            )
        if standing.state is State.RUNNING:
            ran_s = now - (standing.started_at or now)
            return estimator.rest(ran_s=ran_s, size_b=job.size, priority=job.priority)
        if standing.state in (State.SCHEDULED, State.RETRYING):
            queued = self._book.depth(job.task, now=now).queued
            eta = estimator.eta(
                position=queued + 1, now=now, priority=job.priority, size_b=job.size, live=live
            )
            return None if eta is None else eta.later(max(0.0, standing.ready_at - now))
        return None
