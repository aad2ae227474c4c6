"""Scaling: looks at the replicas of one lane, and tells how many of its places are to have a child."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from forebay.core.hand import TaskHand
from forebay.core.replicas import Replica
from forebay.core.scaling import ScalePolicy, Scaler, Seen
from forebay.core.task import TaskSpec
from forebay.host.memory import memory_free_b
from forebay.node.lane import Lane
from forebay.node.slot import Slot
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock

LOOK_S: Final = 0.25
ROOM_SHARE: Final = 1.1  # of a child: those there are will grow a little, too


def scaling_of(
    lane: Lane,
    spec: TaskSpec | None,
    policy: ScalePolicy,
    *,
    broker: Broker,
    clock: Clock,
) -> "Scaling | None":
    """Return what watches the replicas of a class task, None for one whose number is fixed, or for the pool.
    `policy` is for all tasks; the bounds are the task's own."""
    if spec is None or spec.replicas_least is None or spec.replicas is None:
        return None
    policy = replace(policy, least=spec.replicas_least, most=spec.replicas)
    return Scaling(lane, spec, policy, broker=broker, clock=clock)


def room_for(slots: Sequence[Slot], free_b: Callable[[], int] = memory_free_b) -> int | None:
    """Return how many more children the memory has room for, each as large as the largest there is; None
    where there is none to go by. The memory of devices is not looked at."""
    sizes = [slot.replica.memory_b() for slot in slots if slot.replica is not None and slot.state == "ready"]
    largest_b = max(sizes, default=0)
    return int(free_b() // (ROOM_SHARE * largest_b)) if largest_b else None


class Scaling:
    """The eyes of a Scaler. What it decides is told to those who measure."""

    def __init__(
        self,
        lane: Lane,
        spec: TaskSpec,
        policy: ScalePolicy,
        *,
        broker: Broker,
        clock: Clock,
    ) -> None:
        self._lane = lane
        self._task: TaskHand = lane.dispatcher.hand.tasks[spec.name]
        self._scaler = Scaler(policy)
        self._broker = broker
        self._clock = clock
        self._looked_at = clock.now()
        lane.facts.scaled(spec.name, self._scaler.replicas)

    @property
    def replicas(self) -> int:
        """So many children there are to be."""
        return self._scaler.replicas

    def look(self, slots: Sequence[Slot]) -> None:
        """Look at the places of the lane, and decide."""
        now = self._clock.now()
        decision = self._scaler.decide(self._seen(slots, now), now=now)
        self._looked_at = now
        if decision is not None:
            self._lane.facts.scaled(self._task.spec.name, decision.replicas, decision.was, decision.reason)

    def to_end(self, slots: Sequence[Slot]) -> list[Slot]:
        """Return the places with a child too many that can lose it now: those first whose child serves
        nobody yet, then idle ones. A busy one is left alone until it is idle, but where calls run beside
        each other, and every replica has some, the one with the fewest ends when they have ended."""
        wanted = [slot for slot in slots if not slot.parked]
        excess = len(wanted) - self.replicas
        if excess <= 0:
            return []
        found = [slot for slot in reversed(wanted) if slot.state != "ready"]
        ready = [slot for slot in reversed(wanted) if slot.state == "ready"]
        ready.sort(key=lambda slot: self._lane.in_hand(slot.number))
        if self._task.spec.concurrency == 1:
            ready = [slot for slot in ready if not self._lane.in_hand(slot.number)]
        return (found + ready)[:excess]

    def _seen(self, slots: Sequence[Slot], now: float) -> Seen:
        hand, name, spec = self._lane.dispatcher.hand, self._task.spec.name, self._task.spec
        replicas = [one for one in hand.replicas.values() if one.open]
        load = self._broker.load_now(name, now=now)
        queued = 0 if load is None or load.paused else load.queued
        return Seen(
            ready=len(replicas),
            full=sum(self._fill(one) >= 1.0 for one in replicas),
            load=sum(self._fill(one) for one in hand.replicas.values()),
            coming=sum(not slot.parked and slot.state not in ("ready", "crash_loop") for slot in slots),
            waiting=queued + len(self._task.held) + hand.basin.waiting,
            refused=hand.basin.refused_at.get(name, float("-inf")) >= self._looked_at,
            run_s=self._task.fit.run_s(spec.batch_max),
            at_once=max(spec.batch_max, spec.concurrency),
            load_s=self._lane.crew.load_s,
            broken=sum(not slot.parked and slot.state == "crash_loop" for slot in slots),
            room=room_for(slots) if replicas and all(self._fill(one) >= 1.0 for one in replicas) else None,
        )

    def _fill(self, replica: Replica) -> float:
        """Return how much of what it can run at once a replica has: a batch fills it, whatever its size."""
        if self._task.spec.concurrency == 1:
            return float(bool(replica.runs))
        return min(1.0, replica.unfinished() / self._task.spec.concurrency)
