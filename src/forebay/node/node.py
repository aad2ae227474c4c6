"""Node: the lanes, children and janitor of one machine; starts them, drains them, tells what they do."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.core.blobs import BlobTerms
from forebay.core.breaker import BreakerState, Change, CircuitBreaker
from forebay.core.estimator import Estimator
from forebay.core.guard import guards_of, guests_of
from forebay.core.job import PRIORITY_NORMAL
from forebay.core.requests import RequestPolicy
from forebay.core.scaling import ScalePolicy
from forebay.core.task import TaskSpec
from forebay.node.breakers import InnerBreakers
from forebay.node.death import OomCounter
from forebay.node.facts import LaneFacts, NoFacts
from forebay.node.janitor import Janitor
from forebay.node.lane import Lane
from forebay.node.lanes import as_lane_sees, lanes_of
from forebay.node.replica import ReplicaSpec
from forebay.node.requesting import Desk
from forebay.node.scaling import scaling_of
from forebay.node.slot import BreakerSeen, Slot
from forebay.node.supervisor import Supervisor
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock
from forebay.ports.feed import Feed
from forebay.ports.spool import UNSWEPT

if TYPE_CHECKING:  # its HTTP client is imported where there is an upstream
    from forebay.node.upstream import Upstream

DRAIN_LOOK_S = 0.02  # how often a drain looks whether it is done
STALLED_S = 10.0  # without a working sweep for so long the queue counts as stalled
SHOWN_CRASH_MAX = 300  # characters of a crash in a reason


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """What this node is to run, decided before it starts."""

    app: str
    tasks: Sequence[TaskSpec]
    workers: int  # replicas of each class task, and children of the pool
    gpus: int = 0
    threads: int = 1  # cap for the maths libraries of one child
    lease_s: float = 30.0
    result_bytes_max: int = 256 * 1024
    blobs: BlobTerms | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    requests: RequestPolicy = field(default_factory=RequestPolicy)
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])  # of queues
    scale: ScalePolicy = field(default_factory=ScalePolicy)  # of tasks whose replicas are a range


class Node:
    """Leases, runs and settles. Give it an open engine; it closes nothing that it did not open."""

    def __init__(
        self,
        plan: NodePlan,
        *,
        broker: Broker,
        clock: Clock,
        worker: str,
        estimators: dict[str, Estimator],
        facts: LaneFacts | None = None,
        on_failure: Callable[[str, BaseException], None] | None = None,
        on_broken: Callable[[BaseException], None] | None = None,
        on_restart: Callable[[str, str, Mapping[str, object]], None] | None = None,
        on_output: Callable[[str, str], None] | None = None,
        feed: Feed | None = None,
    ) -> None:
        self.plan = plan
        self.worker = worker
        self._broker = broker
        self._clock = clock
        self._oom = OomCounter()
        self._facts = facts or NoFacts()
        self._estimators = estimators
        self._on_broken = on_broken
        self._on_restart = on_restart
        self._on_output = on_output
        self._feed = feed
        self._unsubscribe: list[Callable[[], None]] = []
        self._numbers = 0
        self._lanes: dict[str, Lane] = {}  # by task
        self._lane_names: dict[str, str] = {}
        self.requests = Desk(self._lanes, self._instead)
        self._hosts: dict[str, Lane] = {}  # by task: where its jobs are run while its breaker is open
        self._breakers = {
            spec.name: CircuitBreaker(spec.breaker) for spec in plan.tasks if spec.breaker is not None
        }
        self.supervisors: dict[str, Supervisor | Upstream] = {}  # by lane
        self.inner_breakers = InnerBreakers(self._slots, facts=self._facts, clock=clock)
        self.janitor = Janitor(broker, clock, on_failure=on_failure, on_expired=self._expired)
        for name, specs in lanes_of(plan.tasks).items():
            self._add_lane(name, specs)
        for name in self._breakers:
            self._facts.breaker(worker, name, BreakerState.CLOSED.value, 0, "")

    def start(self) -> None:
        """Begin: children load in the background, leasing starts with the first that is ready."""
        self._unsubscribe = [
            self._broker.on_work(self._knock),
            self._broker.on_cancel(self._cancelled),
        ]
        for supervisor in self.supervisors.values():
            supervisor.start()
        self.janitor.start()

    async def drain(self, grace_s: float, *, hurry: asyncio.Event | None = None) -> bool:
        """Stop leasing, hand back what has not started, let the rest finish within `grace_s`.

        What still runs then, or when `hurry` is set, is killed and handed back without a charge.
        Returns whether everything finished by itself.
        """
        lanes = [supervisor.lane for supervisor in self.supervisors.values()]
        for supervisor in self.supervisors.values():
            supervisor.drain()
            supervisor.lane.drain()
        give_up_at = self._clock.now() + grace_s
        while not all(lane.idle for lane in lanes):
            if self._clock.now() >= give_up_at or (hurry is not None and hurry.is_set()):
                break
            await self._clock.sleep(DRAIN_LOOK_S)
        finished = all(lane.idle for lane in lanes)
        if not finished:
            for lane in lanes:
                lane.abandon()
            give_up_at = self._clock.now() + 2.0
            while not all(lane.idle for lane in lanes) and self._clock.now() < give_up_at:
                await self._clock.sleep(DRAIN_LOOK_S)
        return finished

    async def close(self) -> None:
        """Stop the children and the janitor. Call `drain` first. Twice is harmless."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe = []
        await self.janitor.close()
        await asyncio.gather(*(supervisor.close(1.0) for supervisor in self.supervisors.values()))
        await asyncio.gather(*(supervisor.lane.close() for supervisor in self.supervisors.values()))

    # -- what others may ask -------------------------------------------------------------------------

    def workers(self) -> list[Mapping[str, object]]:
        """Return one record per replica, as GET /v1/workers shows it."""
        return [self._shown(name, slot) for name, slot in self._slots()]

    def breakers_inside(self) -> Sequence[Mapping[str, object]]:
        """Return the named breakers of each replica: `worker`, `task` (its lane) and `breakers`."""
        return self.inner_breakers.shown()

    def unready_reason(self) -> str | None:
        """Return why some task gets no work done, None when every lane has a replica that serves."""
        if self._clock.now() - self.janitor.swept_at > STALLED_S:
            return f"{UNSWEPT} for {STALLED_S:g} s"
        for name, supervisor in self.supervisors.items():
            states = [slot.state for slot in supervisor.slots if not slot.parked]
            if "ready" not in states:
                state = "crash_loop" if "crash_loop" in states else (states or ["none"])[0]
                crash = next((slot.last_crash for slot in supervisor.slots if slot.last_crash), "")
                why = f": {crash[:SHOWN_CRASH_MAX]}" if crash else ""
                return f"no replica of {name} is ready ({state}){why}"
        return None

    def breaker(self, task: str) -> Mapping[str, object] | None:
        """Return where the breaker of a task stands, as GET /v1/tasks shows it; None when it has none."""
        breaker = self._breakers.get(task)
        if breaker is None:
            return None
        now = self._clock.now()
        seen = BreakerSeen(breaker.state(now=now).value, breaker.trips, breaker.open_until, breaker.reason)
        return seen.shown(task, now=now)

    def ready(self, task: str) -> int:
        """Return how many replicas serve a task now."""
        slots = self.supervisors[self._lane_names[task]].slots
        return sum(slot.state == "ready" for slot in slots)

    def level(self, task: str) -> int:
        """Return which variant of a task runs ordinary work now, 0 is the task itself."""
        return self._lanes[task].dispatcher.hand.tasks[task].level_of(PRIORITY_NORMAL)

    # -- inside --------------------------------------------------------------------------------------

    def _slots(self) -> list[tuple[str, Slot]]:
        return [(name, slot) for name, lane in self.supervisors.items() for slot in lane.slots]

    def _add_lane(self, name: str, specs: list[TaskSpec]) -> None:
        guests = guests_of(specs, self.plan.tasks)
        lane = Lane(
            [as_lane_sees(spec) for spec in specs],
            broker=self._broker,
            clock=self._clock,
            worker=self.worker,
            lease_s=self.plan.lease_s,
            facts=self._facts,
            estimators=self._estimators,
            on_broken=self._on_broken,
            feed=self._feed,
            guards=guards_of(specs, guests, self._breakers),
            guests=guests,
            on_breaker=self._breaker_changed,
            requests={spec.name: self.plan.requests for spec in specs},
            bounds=self.plan.bounds,
            knocks=self.requests.knocks,
        )
        self.supervisors[name] = self._supervisor(name, lane, specs)
        for spec in specs:
            self._lanes[spec.name] = lane
            self._lane_names[spec.name] = name
        for guest, _ in guests:
            self._hosts[guest.name] = lane

    def _supervisor(self, name: str, lane: Lane, specs: list[TaskSpec]) -> "Supervisor | Upstream":
        if specs[0].upstream is not None:
            from forebay.node.upstream import Upstream

            self._numbers += 1
            slot = Slot(number=self._numbers, name=f"{self.worker}/{name}/0", device="upstream", gpu=None)
            return Upstream(lane, slot, specs[0], clock=self._clock)
        one = specs[0] if specs[0].kind == "class" else None
        replicas = one.replicas if one is not None and one.replicas else self.plan.workers
        tasks = tuple(spec.name for spec in specs)
        return Supervisor(
            lane,
            [self._slot(name, one, index) for index in range(replicas)],
            spec_of=lambda slot: self._spec(slot, tasks, max(spec.load_timeout_s for spec in specs)),
            clock=self._clock,
            oom=self._oom,
            breakers=self.inner_breakers,
            on_restart=lambda reason, facts: self._restarted(name, reason, facts),
            on_output=self._output,
            scaling=scaling_of(lane, one, self.plan.scale, broker=self._broker, clock=self._clock),
        )

    def _slot(self, lane: str, spec: TaskSpec | None, index: int) -> Slot:
        self._numbers += 1
        devices = spec.devices if spec is not None else ("cpu",)
        device = devices[index % len(devices)] if devices else ("cuda" if self.plan.gpus else "cpu")
        kind, _, number = device.partition(":")
        gpu = None
        if kind == "cuda":
            gpu = int(number) if number else index % max(1, self.plan.gpus)
        name = f"{self.worker}/{lane}/{index}"
        return Slot(number=self._numbers, name=name, device=device, gpu=gpu)

    def _spec(self, slot: Slot, tasks: tuple[str, ...], load_timeout_s: float) -> ReplicaSpec:
        kind = "cuda" if slot.gpu is not None else "cpu"
        return ReplicaSpec(
            app=self.plan.app,
            tasks=tasks,
            device=kind,
            slot=slot.gpu,
            threads=self.plan.threads,
            result_bytes_max=self.plan.result_bytes_max,
            blobs=self.plan.blobs,
            load_timeout_s=load_timeout_s,
            env=dict(self.plan.env),
        )

    def _shown(self, lane: str, slot: Slot) -> Mapping[str, object]:
        replica = slot.replica
        state = slot.state
        if replica is not None and state == "ready" and replica.unresponsive:
            state = "unresponsive"
        return {
            "worker": slot.name,
            "node": self.worker,
            "task": lane,
            "device": slot.device if slot.gpu is None else f"cuda:{slot.gpu}",
            "state": state,
            "pid": None if replica is None else replica.pid,
            "batch": self.supervisors[lane].lane.in_hand(slot.number),
            "memory_bytes": 0 if replica is None else replica.memory_b(),
            "restarts": slot.restarts,
            "last_crash": slot.last_crash,
            "breakers": self.inner_breakers.shown_of(slot),
            "started_at": None if replica is None else replica.started_at,
        }

    def _instead(self, task: str) -> "bytes | Lane | None":
        """Return what answers requests of a task while its breaker lets none through."""
        breaker = self._breakers.get(task)
        if breaker is None or breaker.retry_after_s(now=self._clock.now()) == 0.0:
            return None
        canned = next((spec.canned for spec in self.plan.tasks if spec.name == task), None)
        return self._hosts.get(task) if canned is None else canned

    def _knock(self, task: str) -> None:
        lane = self._lanes.get(task)
        if lane is not None:
            lane.knock(task)
        host = self._hosts.get(task)
        if host is not None and self._breakers[task].state(now=self._clock.now()) is not BreakerState.CLOSED:
            host.knock(task)

    def _breaker_changed(self, task: str, change: Change) -> None:
        tripped = change.was is BreakerState.CLOSED
        self._facts.breaker(self.worker, task, change.state.value, int(tripped), change.reason)
        host = self._hosts.get(task)
        if host is not None:
            host.knock(task)

    def _expired(self, job_ids: Sequence[str]) -> None:
        for estimator in self._estimators.values():
            if estimator.scoring:
                estimator.forget(job_ids)

    def _cancelled(self, task: str) -> None:
        if task in self._lanes:
            self._lanes[task].look_for_cancels()

    def _restarted(self, lane: str, reason: str, facts: Mapping[str, object]) -> None:
        if self._on_restart is not None:
            self._on_restart(lane, reason, facts)

    def _output(self, slot: Slot, line: str) -> None:
        if self._on_output is not None:
            self._on_output(slot.name, line)
