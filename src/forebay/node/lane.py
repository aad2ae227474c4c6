"""Lane: performs one Dispatcher's actions on the engine and on real children; decides nothing."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from forebay.core.actions import (
    Action,
    CancelItem,
    ChargeInputs,
    Commit,
    GiveBack,
    KillReplica,
    LeaseJobs,
    Outcome,
    Renew,
    RunBatch,
    StopReplica,
)
from forebay.core.breaker import Change
from forebay.core.dispatcher import Dispatcher
from forebay.core.estimator import Crew, Estimator
from forebay.core.guard import Guard
from forebay.core.job import Hold, JobError, Lease
from forebay.core.knocks import Knocks
from forebay.core.replicas import UNKNOWN, Traces
from forebay.core.requests import RequestPolicy
from forebay.core.stopping import running
from forebay.core.task import TaskSpec
from forebay.errors import ForebayError, StoreBrokenError
from forebay.node.barring import Barring
from forebay.node.facts import LaneFacts, NoFacts, unheard
from forebay.node.feeding import Feeding
from forebay.node.requesting import LaneRequests
from forebay.node.runner import Child
from forebay.node.settler import Ops, Settler
from forebay.node.telling import Bounds, Telling
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock
from forebay.ports.feed import Feed


class Lane:
    """The replicas of one class task, or the pool of all plain functions, on one node."""

    def __init__(
        self,
        specs: Sequence[TaskSpec],
        *,
        broker: Broker,
        clock: Clock,
        worker: str,
        lease_s: float = 30.0,
        facts: LaneFacts | None = None,
        estimators: dict[str, Estimator] | None = None,
        on_broken: Callable[[BaseException], None] | None = None,
        feed: Feed | None = None,
        guards: Mapping[str, Guard] | None = None,
        guests: Sequence[tuple[TaskSpec, str]] = (),
        on_breaker: Callable[[str, Change], None] | None = None,
        requests: Mapping[str, RequestPolicy] | None = None,
        bounds: Mapping[str, Bounds] | None = None,
        knocks: Knocks | None = None,
    ) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self._runs_as = {guest.name: task for guest, task in guests}
        every = [*specs, *(guest for guest, _ in guests)]
        self.dispatcher = Dispatcher(every, lease_s=lease_s, guards=guards, requests=requests)
        self.dispatcher.hand.basin.knocks = knocks or Knocks()
        self.worker = worker
        self.lease_s = lease_s
        self.facts = facts or NoFacts()
        self._broker = broker
        self._clock = clock
        self._on_broken = on_broken
        self._feeding = Feeding(self.dispatcher.hand, feed)
        self._barring = Barring(self.dispatcher, broker, clock, self.specs, self.facts)
        self._children: dict[int, Child] = {}
        self.crew = Crew(self.dispatcher.hand)
        known = estimators or {}
        own = {name: known[name] for name in self.specs if name in known}
        for estimator in own.values():
            estimator.crew = self.crew
        self._telling = Telling(
            self.dispatcher, broker, clock, self.facts,
            estimators=own, bounds=bounds or {}, on_breaker=on_breaker or unheard,
        )  # fmt: skip
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at: float | None = None
        self._turning = False
        self._again = False
        self._ops = Ops()
        self.requests = LaneRequests(
            self.dispatcher, clock, self.facts, turn=self.turn, alarm_at=lambda: self._wake_at
        )
        self._settler = Settler(
            broker,
            clock,
            self._ops,
            lease_s=lease_s,
            facts=self.facts,
            estimators=known,
            on_failure=self._failed,
            on_stored=self._stored,
        )

    # -- what happens ------------------------------------------------------------------------------

    def knock(self, task: str) -> None:
        """The doorbell: there may be work. Called in the submitter's step, so that the lease it leads to
        can join the submit's own commit."""
        known = task in self.dispatcher.hand.tasks
        if known and not self.dispatcher.draining and self.dispatcher.knock(task):
            self.turn()

    def child_starting(self, replica: int, *, in_s: float) -> None:
        """A child is started in `in_s`; until it is ready, estimates count on it by how long loads took."""
        self.crew.starting(replica, at=self._clock.now() + in_s)

    def child_unwanted(self, replica: int) -> None:
        """The child that was to be started is not."""
        self.crew.gone(replica, was_ready=False)

    def child_ready(self, replica: int, child: Child, name: str = "", calls_max: int | None = None) -> None:
        """A child has loaded; `name` is what people know it by, `calls_max` how many calls it takes."""
        self._children[replica] = child
        self.dispatcher.replica_ready(replica, name, calls_max)
        self.crew.ready(replica, now=self._clock.now())
        self.turn()

    def child_died(self, replica: int, error: JobError, traces: Traces = UNKNOWN, *, log: str = "") -> None:
        """A child is gone; `error` names how, `log` is what it printed last."""
        was_ready = self._children.pop(replica, None) is not None
        now, jitter = self._clock.now(), self._clock.random()
        self.dispatcher.replica_died(replica, error=error, now=now, jitter=jitter, traces=traces, log=log)
        self.crew.gone(replica, was_ready=was_ready)
        self._barring.died()
        self.turn()

    def results(self, outcomes: Sequence[Outcome], busy_s: float, log: str = "") -> None:
        """A child finished items and spent `busy_s` on them; `log` is what it printed where one failed."""
        now, jitter = self._clock.now(), self._clock.random()
        self.dispatcher.results(outcomes, now=now, jitter=jitter, busy_s=busy_s, log=log)
        self.turn()

    def passed(self, replica: int) -> None:
        """A child began another pass over a batch that failed."""
        self.dispatcher.passed(replica, now=self._clock.now())
        self.turn()

    def progressed(self, tag: int, progress: bytes) -> None:
        """A handler reported progress."""
        self.dispatcher.progressed(tag, progress)
        self._feeding.progress(tag, progress)
        self.turn()

    def parts(self, parts: Sequence[tuple[int, int, bytes]]) -> None:
        """Handlers yielded parts of their outputs: (tag, number of the part, JSON text)."""
        self._feeding.parts(parts)

    def checkpointed(self, checkpoints: Sequence[tuple[int, bytes]]) -> None:
        """Handlers stored checkpoints."""
        for tag, text in checkpoints:
            self.dispatcher.checkpointed(tag, text)
        self.turn()

    def returned(self, tags: Sequence[int]) -> None:
        """A child gave back what it had not started."""
        self.dispatcher.returned(tags, now=self._clock.now())
        self._barring.look()
        self.turn()

    def limit_calls(self, replica: int, calls_max: int) -> None:
        """This replica takes so many calls beside each other, 0 for none; the next turn goes by it."""
        entry = self.dispatcher.hand.replicas.get(replica)
        if entry is not None and entry.calls_max != calls_max:
            entry.limit_calls(calls_max)
            self.facts.limited(next(iter(self.specs)), calls_max)

    def look_for_cancels(self) -> None:
        """Somebody asked for a running job of this lane to be cancelled: renew now and hear of it."""
        self.dispatcher.renew_now()
        self.turn()

    def retire(self, replica: int) -> None:
        """Replace this child when it is empty."""
        self.dispatcher.retire(replica)
        self.turn()

    def drain(self) -> None:
        """Lease nothing more; hand back what has not started."""
        self.dispatcher.drain(now=self._clock.now())
        self.turn()

    def abandon(self) -> None:
        """The grace is over."""
        self.dispatcher.abandon()
        self.requests.close()
        self.turn()

    def works_on(self, replica: int, tag: int | None = None) -> tuple[str, tuple[str, ...]]:
        """Return the task and some of the jobs a child works on; the tagged one alone where it is known."""
        entry = self.dispatcher.hand.replicas.get(replica)
        return ("", ()) if entry is None else running(entry, tag)

    def in_hand(self, replica: int) -> int:
        """Return the items this child has been sent and has not finished."""
        entry = self.dispatcher.hand.replicas.get(replica)
        return 0 if entry is None else entry.unfinished()

    @property
    def idle(self) -> bool:
        """Whether nothing is in hand and everything decided is stored."""
        return self.dispatcher.idle and not self._settler.count

    async def close(self) -> None:
        """Stop turning; wait for what is on its way to the store."""
        if self._timer is not None:
            self._timer.cancel()
        await self._ops.ended(1.0)

    # -- the turn ----------------------------------------------------------------------------------

    def turn(self) -> None:
        """Poll the Dispatcher until it wants nothing more, perform all of it, set the alarm."""
        if self._turning:  # an action answered at once: the loop below goes round again
            self._again = True
            return
        self._turning = True
        self._telling.look()
        try:
            while True:
                self._again = False
                actions = self.dispatcher.poll(now=self._clock.now())
                for action in actions:
                    self._perform(action)
                if not actions and not self._again:
                    break
        finally:
            self._turning = False
        self._telling.tell()
        self._set_alarm()
        self.requests.tell()

    def _perform(self, action: Action) -> None:
        match action:
            case Commit():
                self._settler.commit(action)
            case LeaseJobs(task, limit):
                self._lease(task, limit)
            case RunBatch(replica, run, task, items, singles, trigger, level):
                self.facts.batch(task, len(items), trigger)
                handler = self._runs_as.get(task, task)
                self._with_child(
                    replica, lambda child: child.run(run, handler, items, singles=singles, level=level)
                )
            case ChargeInputs(charges):
                self._ops.begin(lambda: self._barring.charge(charges, self.turn, self._failed))
            case Renew():
                self._ops.begin(lambda: self._renew(action))
            case CancelItem(replica, tag):
                self._with_child(replica, lambda child: child.cancel(tag))
            case GiveBack(replica):
                self._with_child(replica, lambda child: child.give_back())
            case KillReplica(replica, reason):
                self.facts.killed(action)
                self._with_child(replica, lambda child: child.kill(reason.value))
            case StopReplica(replica):
                self._with_child(replica, lambda child: child.stop())

    def _with_child(self, replica: int, ask: Callable[[Child], None]) -> None:
        child = self._children.get(replica)
        if child is not None:
            ask(child)

    def _set_alarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake_at = self._wake_at = self.dispatcher.wake_at()
        if wake_at is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, wake_at - self._clock.now()), self.requests.ring)

    # -- the engine --------------------------------------------------------------------------------

    def _lease(self, task: str, limit: int) -> None:
        now = self._clock.now()
        if self._settler.full:
            self.dispatcher.leased(task, (), asked=limit, now=now)
            return
        future = self._ops.begin(
            lambda: self._broker.lease(task, limit=limit, lease_s=self.lease_s, worker=self.worker, now=now)
        )
        future.add_done_callback(lambda done: self._leased(task, limit, done))

    def _leased(self, task: str, limit: int, done: "asyncio.Future[list[Lease]]") -> None:
        leases: list[Lease] = []
        if not done.cancelled() and (error := done.exception()) is not None:
            self._failed("lease", error)
        elif not done.cancelled():
            leases = done.result()
        now = self._clock.now()
        self._barring.leased(task, leases, asked=limit, now=now)
        self.facts.leased(task, leases, now)
        self.turn()

    def _stored(self, commit: Commit) -> None:
        if self._barring.stored(commit, all_stored=not self._settler.count) or self.dispatcher.draining:
            self.turn()  # whoever drains waits for the last of these

    async def _renew(self, action: Renew) -> None:
        try:
            answers = await self._broker.extend(action.claims, lease_s=self.lease_s, now=self._clock.now())
        except ForebayError as error:
            self._failed("renew", error)
            return
        # What was settled while the renewal was on its way is not lost.
        held = self.dispatcher.hand.items
        lost = sum(tag in held for tag, hold in zip(action.tags, answers, strict=True) if hold is Hold.LOST)
        if lost:
            self.facts.lost(lost)
        self.dispatcher.renewed(action.tags, answers, now=self._clock.now())
        self.turn()

    def _failed(self, verb: str, error: BaseException) -> None:
        self.facts.failed(verb, error)
        broken = isinstance(error, StoreBrokenError) or not isinstance(error, ForebayError)
        if broken and self._on_broken is not None:
            self._on_broken(error)
