"""World: plays one plan over one store in virtual time: chaos, then healing in which everything must end."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from forebay.core import settle
from forebay.core.book import Book
from forebay.core.job import JobError
from forebay.core.lifecycle import State
from forebay.core.retry import RetryPolicy
from forebay.errors import StoreFullError
from forebay.sim.chance import Chance
from forebay.sim.checker import Checker
from forebay.sim.clients import SimClient
from forebay.sim.engine import Engine
from forebay.sim.faults import POINTS, Fault, FaultKind, Windows
from forebay.sim.forecasts import Forecasts
from forebay.sim.node import SimNode
from forebay.sim.plan import START, Plan, PlannedJob
from forebay.sim.watched import WatchedBook

SWEEP_S = 0.25
CHECK_ALL_EVERY = 100  # events between two looks at every record
LOST = JobError("worker_lost", "the node that ran it died, or its lease lapsed")


class Played(NamedTuple):
    """What became of a history."""

    plan: Plan
    events: int
    took_s: float  # virtual
    states: dict[State, int]
    checks: int
    history: list[tuple[Any, ...]]


class World:
    """One history. `reopen` is what a restart of the owner of an embedded store does to it; `live_every_s`
    not None makes it foretell the end of every job at its submission, and so often of some open ones."""

    def __init__(
        self,
        plan: Plan,
        book: Book,
        *,
        reopen: Callable[[Book, float], Book] | None = None,
        keep_history: bool = False,
        checker: Checker | None = None,
        check_all_every: int = CHECK_ALL_EVERY,
        live_every_s: float | None = None,
    ) -> None:
        self.plan = plan
        self.chance = Chance(plan.seed).fork(1)
        self.engine = Engine(Chance(plan.seed).fork(2), start=START)
        self.checker = checker or Checker()
        self._check_all_every = check_all_every
        self.windows = Windows(plan.faults)
        self.services = plan.services
        self.levels = plan.levels
        policies = {spec.name: spec.settle.retry for lane in plan.lanes for spec in lane}
        self.store = WatchedBook(
            book,
            self.checker,
            policy_of=lambda task: policies.get(task, RetryPolicy()),
            true_now=lambda: self.engine.now,
        )
        self.scripts: dict[str, PlannedJob] = {}
        self.forecasts = None
        if live_every_s is not None:
            specs = [spec for lane in plan.lanes for spec in lane]
            self.forecasts = Forecasts(specs, book, self.engine, live_every_s=live_every_s)
        self.history: list[tuple[Any, ...]] = []
        self._keep = keep_history
        self._reopen = reopen
        self._heals_at = START + plan.chaos_s
        self._lives = 0
        self._rests = False
        self.nodes = {number: self._new_node(number) for number in range(plan.nodes)}
        self.clients = [SimClient(job, self) for job in plan.jobs]
        for fault in plan.faults:
            if fault.kind in POINTS:
                self.engine.at(fault.at, self._befall, fault)
        self.engine.after(SWEEP_S, self._sweep)

    def run(self) -> Played:
        """Play it. Raises BrokenError at the first invariant that does not hold."""
        end = self._heals_at + self.plan.heal_s
        while self.engine.now <= end and not self._rests and self.engine.step():
            if self.engine.played % self._check_all_every == 0:
                self.store.look_at_all()
        self.store.look_at_all()
        self.checker.all_ended()
        states: dict[State, int] = {}
        for sight in self.checker.jobs.values():
            state = sight.record.standing.state
            states[state] = states.get(state, 0) + 1
        took_s = self.engine.now - START
        return Played(self.plan, self.engine.played, took_s, states, self.checker.checks, self.history)

    # -- for the actors ----------------------------------------------------------------------------

    def note(self, *what: Any) -> None:
        """Write a line of history."""
        if self._keep:
            self.history.append((round(self.engine.now, 9), *what))

    def struck(self, kind: FaultKind) -> bool:
        """Say whether a lasting fault of this kind strikes now."""
        if self.windows.strike(kind, self.engine.now) is None:
            return False
        self.note("fault", kind.value)
        return True

    def must_write(self) -> None:
        """Raise StoreFullError while nothing can be written."""
        if self.struck(FaultKind.STORE_FULL):
            raise StoreFullError

    def latency(self) -> float:
        """Return how long an answer of the store takes."""
        mean = self.plan.latency_s
        if self.windows.strike(FaultKind.REPLY_LATE, self.engine.now) is not None:
            for node in self.nodes.values():
                node.misled = True
            return self.chance.between(0.5, 3.0)
        return self.chance.exponential(mean) if mean else 0.0

    def tell(self, job_ids: Sequence[str]) -> None:
        """Ring the doorbells for what became ready, now and then not at all."""
        tasks: dict[str, None] = {}
        for job_id in job_ids:
            sight = self.checker.jobs.get(job_id)
            if sight is not None and sight.record.standing.state is State.QUEUED:
                tasks[sight.record.job.task] = None
        for task in tasks:
            for node in self.nodes.values():
                if not self.struck(FaultKind.BELL_LOST):
                    node.later(0.0, node.knock, task)

    def look_for_cancels(self) -> None:
        """Tell every node that a running job is to be cancelled."""
        for node in self.nodes.values():
            if not self.struck(FaultKind.BELL_LOST):
                node.later(0.0, node.look_for_cancels)

    # -- time and fate -----------------------------------------------------------------------------

    def _at_rest(self) -> bool:
        if self.store.open or not all(client.done for client in reversed(self.clients)):
            return False
        return all(node.idle for node in self.nodes.values())

    def _new_node(self, number: int) -> SimNode:
        self._lives += 1
        return SimNode(number, self._lives, self)

    def _sweep(self) -> None:
        self.engine.after(SWEEP_S, self._sweep)
        self._rests = self._at_rest()
        if self.struck(FaultKind.STORE_FULL):
            return
        now = self.engine.now
        swept = self.store.sweep(limit=1000, now=now)
        if swept.overdue:
            self.store.commit([settle.lose(lease, error=LOST, now=now) for lease in swept.overdue], now=now)
        self.tell([*swept.promoted, *(lease.job.id for lease in swept.overdue)])

    def _befall(self, fault: Fault) -> None:
        node = self.nodes[fault.which % len(self.nodes)]
        self.note("fault", fault.kind.value, node.name)
        now = self.engine.now
        match fault.kind:
            case FaultKind.NODE_PAUSE:
                node.paused_until = max(node.paused_until, now + fault.for_s)
                node.misled = True
            case FaultKind.NODE_CRASH:
                self._crash(node, fault.for_s)
            case FaultKind.NODE_DRAIN:
                node.later(0.0, node.drain)
                self.engine.after(3.0, self._crash, node, 0.1)
            case _:
                children = [child for lane in node.lanes for child in lane.children.values()]
                if not children:
                    return
                child = children[fault.which % len(children)]
                if fault.kind is FaultKind.CHILD_CRASH:
                    child.crash()
                else:
                    node.misled = True
                    child.paused_until = max(child.paused_until, now + fault.for_s)

    def _crash(self, node: SimNode, down_s: float) -> None:
        if not node.alive:
            return
        node.alive = False
        for lane in node.lanes:
            for child in lane.children.values():
                self.checker.crashed([])
                child.alive = False
        self.engine.after(down_s, self._restart, node)

    def _restart(self, node: SimNode) -> None:
        if self._reopen is not None and len(self.nodes) == 1:  # one owner: whatever runs is overdue at once
            self.store.reopened(self._reopen(self.store.book, self.engine.now), now=self.engine.now)
        self.nodes[node.number] = self._new_node(node.number)
        self.note("restart", self.nodes[node.number].name)
