"""SimNode, Lane: a machine with its Dispatchers, performing their actions on a store and on children."""

from collections.abc import Mapping

from forebay.core.actions import (
    Action,
    CancelItem,
    Commit,
    GiveBack,
    KillReplica,
    LeaseJobs,
    Outcome,
    Renew,
    RunBatch,
    StopReplica,
)
from forebay.core.ahead import AHEAD_MAX_S
from forebay.core.breaker import CircuitBreaker
from forebay.core.dispatcher import Dispatcher
from forebay.core.estimator import Crew
from forebay.core.guard import guards_of
from forebay.core.hand import FRAME_MAX
from forebay.core.job import Hold, JobError, Lease, Transition
from forebay.core.planning import RUNS_MAX
from forebay.core.restart import RestartPolicy
from forebay.core.task import TaskSpec
from forebay.errors import StoreUnavailableError
from forebay.sim.child import SimChild
from forebay.sim.faults import FaultKind
from forebay.sim.invariants import BrokenError
from forebay.sim.stage import Act, Stage

COMMIT_WAITS_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0)  # between tries to store what was decided
GRACE_S = 1.0  # of a drain
POLLS_MAX = 1_000  # polls of one turn; more means that a Dispatcher never comes to rest


class Lane:
    """One Dispatcher and its children."""

    def __init__(self, node: "SimNode", specs: tuple[TaskSpec, ...], replicas: int) -> None:
        self.node = node
        self.specs: Mapping[str, TaskSpec] = {spec.name: spec for spec in specs}
        breakers = {spec.name: CircuitBreaker(spec.breaker) for spec in specs if spec.breaker is not None}
        guards = guards_of(specs, (), breakers)
        self.dispatcher = Dispatcher(specs, lease_s=node.world.plan.lease_s, guards=guards)
        self.children: dict[int, SimChild] = {}
        self._numbers = 0
        self._deaths = 0
        self.crew = Crew(self.dispatcher.hand)
        if node.world.forecasts is not None:
            node.world.forecasts.watch(self.specs, self.crew)
        self._alarm = 0  # number of the newest alarm: older ones ring for nobody
        self._held_max = replicas * (RUNS_MAX + 1) * sum(self._piece(spec) for spec in specs)
        for _ in range(replicas):
            self._start(0.0)

    def knock(self, task: str) -> None:
        """The doorbell."""
        if task in self.specs and not self.dispatcher.draining:
            self.dispatcher.knock(task)
            self.turn()

    def results(self, outcomes: list[Outcome]) -> None:
        """A child finished items."""
        self.dispatcher.results(outcomes, now=self.node.now, jitter=self.node.world.chance.random())
        self.turn()

    def returned(self, tags: list[int]) -> None:
        """A child gave items back."""
        self.dispatcher.returned(tags, now=self.node.now)
        self.turn()

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    @property
    def misled(self) -> bool:
        """Whether the node was paused, cut off or misled about the time."""
        return self.node.misled

    @property
    def paused_until(self) -> float:
        """Until when the whole node is paused."""
        return self.node.paused_until

    def died(self, child: int, error: JobError) -> None:
        """A child's death is seen."""
        if not self.node.alive:
            return
        if self.node.paused_until > self.node.world.engine.now:
            self.node.later(0.0, self.died, child, error)
            return
        self.children.pop(child, None)
        jitter = self.node.world.chance.random()
        self.dispatcher.replica_died(child, error=error, now=self.node.now, jitter=jitter)
        self._deaths += 1
        wait_s = RestartPolicy(cap_s=1.0).delay_s(quick_deaths=min(self._deaths, 4))
        self.crew.gone(child, was_ready=True)
        self._start(wait_s)
        self.turn()

    def turn(self) -> None:
        """Poll until nothing is wanted, perform all of it, set the alarm."""
        now = self.node.now
        for task in self.dispatcher.hand.laddered:
            world = self.node.world
            self.dispatcher.filled(task.spec.name, world.store.fill(task.spec.name, world.plan.queue_max))
        for _ in range(POLLS_MAX):
            now = self.node.now
            actions = self.dispatcher.poll(now=now)
            if not actions:
                break
            for action in actions:
                self._perform(action)
        else:
            raise BrokenError("B1", "the dispatcher never comes to rest")
        held = len(self.dispatcher.hand.items)
        if held > self._held_max:
            raise BrokenError("B1", f"{held} jobs in hand, {self._held_max} at most")
        ran = self.dispatcher.take_ran()
        if self.node.world.forecasts is not None:
            self.node.world.forecasts.ran(ran)
        self._set_alarm(now)

    def _piece(self, spec: TaskSpec) -> int:
        """Items of one task that one replica may have in one piece, however wrong it measures."""
        if spec.batch_max > 1 or spec.concurrency > 1:
            return max(spec.batch_max, spec.concurrency)
        service = self.node.world.plan.services[spec.name]
        shortest_s = 0.1 * (service.fixed_s + service.each_s)
        return min(FRAME_MAX, 1 + int(AHEAD_MAX_S / shortest_s))

    def _start(self, wait_s: float) -> None:
        self._numbers += 1
        self.crew.starting(self._numbers, at=self.node.now + wait_s)
        self.node.later(wait_s + self.node.world.plan.load_s, self._ready, self._numbers)

    def _ready(self, number: int) -> None:
        if self.dispatcher.draining:
            return
        self.children[number] = SimChild(number, self, self.node.world)
        self.dispatcher.replica_ready(number)
        self.crew.ready(number, now=self.node.now)
        self.turn()

    def _set_alarm(self, now: float) -> None:
        self._alarm += 1
        wake_at = self.dispatcher.wake_at()
        if wake_at is not None:
            if wake_at <= now:
                raise BrokenError("B1", "the dispatcher spins")
            self.node.later(wake_at - now, self._ring, self._alarm)

    def _ring(self, alarm: int) -> None:
        if alarm == self._alarm:
            self.turn()

    def _perform(self, action: Action) -> None:
        node, children = self.node, self.children
        match action:
            case Commit(transitions, leases):
                node.world.note("decide", node.name, [(t.job_id, t.event.value) for t in transitions])
                node.commit(transitions, leases)
            case LeaseJobs(task, limit):
                node.lease(self, task, limit)
            case Renew():
                node.renew(self, action)
            case RunBatch():
                children[action.replica].run(action)
            case CancelItem(replica, tag) if replica in children:
                children[replica].cancel(tag)
            case GiveBack(replica) if replica in children:
                children[replica].give_back()
            case KillReplica(replica, reason) if replica in children:
                node.world.note("kill", node.name, replica, reason.value)
                children[replica].kill()
            case StopReplica(replica) if replica in children:
                children[replica].stop()
            case _:
                pass  # for a child that is gone


class SimNode:
    """One life of a node: a restart makes another."""

    def __init__(self, number: int, life: int, world: Stage) -> None:
        self.number = number
        self.life = life
        self.name = f"node{number}.{life}"
        self.world = world
        self.alive = True
        self.misled = False  # it was paused, cut off or misled about the time
        self.paused_until = 0.0
        self.commits = 0
        self.lanes = [Lane(self, specs, world.plan.replicas) for specs in world.plan.lanes]

    @property
    def now(self) -> float:
        """The time as this node knows it: anchored once, so that setting the wall clock changes nothing."""
        now = self.world.engine.now
        lag = self.world.windows.strike(FaultKind.CLOCK_BACK, now)
        if lag is None:
            return now
        self.misled = True
        return now - 0.3 * lag.share

    def later(self, wait_s: float, act: Act, *args: object) -> None:
        """Do it after a while: not at all when this life has ended, and late when the node is paused."""
        self.world.engine.after(wait_s, self._act, act, args)

    def _act(self, act: Act, args: tuple[object, ...]) -> None:
        if self.paused_until > self.world.engine.now:
            self.world.engine.at(self.paused_until, self._act, act, args)
        elif self.alive:
            act(*args)

    def knock(self, task: str) -> None:
        """The doorbell of the store."""
        for lane in self.lanes:
            lane.knock(task)

    def look_for_cancels(self) -> None:
        """Somebody asked for a running job to be cancelled."""
        for lane in self.lanes:
            lane.dispatcher.renew_now()
            lane.turn()

    def drain(self) -> None:
        """SIGTERM."""
        for lane in self.lanes:
            lane.dispatcher.drain(now=self.now)
            lane.turn()
        self.later(GRACE_S, self._abandon)

    def _abandon(self) -> None:
        for lane in self.lanes:
            lane.dispatcher.abandon()
            lane.turn()

    @property
    def idle(self) -> bool:
        """Whether nothing is in hand and everything decided is stored."""
        return not self.commits and all(lane.dispatcher.idle for lane in self.lanes)

    # -- the store ---------------------------------------------------------------------------------

    def lease(self, lane: Lane, task: str, limit: int) -> None:
        """Ask for leases."""
        world, leases = self.world, list[Lease]()
        try:
            world.must_write()
            leases = world.store.lease(
                task, limit=limit, lease_s=world.plan.lease_s, worker=self.name, now=self.now
            )
        except StoreUnavailableError:
            pass
        if leases:
            world.note("lease", self.name, [(x.job.id, x.fence, x.attempt) for x in leases])
            if world.struck(FaultKind.LEASE_UNANSWERED):
                leases = []
        self.later(world.latency(), self._leased, lane, task, leases, limit)

    def _leased(self, lane: Lane, task: str, leases: list[Lease], limit: int) -> None:
        lane.dispatcher.leased(task, leases, asked=limit, now=self.now)
        lane.turn()

    def renew(self, lane: Lane, action: Renew) -> None:
        """Renew leases."""
        world = self.world
        if world.struck(FaultKind.EXTEND_LOST):
            self.misled = True
            return
        try:
            world.must_write()
            answers = world.store.extend(action.claims, lease_s=world.plan.lease_s, now=self.now)
        except StoreUnavailableError:
            self.misled = True
            return
        if world.struck(FaultKind.EXTEND_UNANSWERED):
            self.misled = True
            return
        self.later(world.latency(), self._renewed, lane, action.tags, answers)

    def _renewed(self, lane: Lane, tags: list[int], answers: list[Hold]) -> None:
        lane.dispatcher.renewed(tags, answers, now=self.now)
        lane.turn()

    def commit(self, transitions: list[Transition], leases: list[Lease], tries: int = 0) -> None:
        """Store decisions; when nobody answers, again and again: the fence makes a repeat harmless."""
        world = self.world
        if tries == 0:
            self.commits += 1
        answered = not world.struck(FaultKind.COMMIT_LOST)
        if answered:
            try:
                world.must_write()
                applied = world.store.commit(transitions, now=self.now)
                if world.forecasts is not None:
                    world.forecasts.settled(transitions, leases, applied)
                world.tell([t.job_id for t in transitions])
                if world.struck(FaultKind.COMMIT_TWICE):
                    world.store.commit(transitions, now=self.now)
                answered = not world.struck(FaultKind.COMMIT_UNANSWERED)
            except StoreUnavailableError:
                answered = False
        if answered or tries > 20:
            self.later(world.latency(), self._committed)
        else:
            wait_s = COMMIT_WAITS_S[min(tries, len(COMMIT_WAITS_S) - 1)]
            self.later(wait_s, self.commit, transitions, leases, tries + 1)

    def _committed(self) -> None:
        self.commits -= 1
        for lane in self.lanes:
            if lane.dispatcher.draining:
                lane.turn()
