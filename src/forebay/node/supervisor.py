"""Supervisor: keeps the children of one lane alive: start, watch, restart with backoff, recycle."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from forebay.core.job import JobError, Lease
from forebay.core.replicas import Traces
from forebay.core.restart import RestartPolicy
from forebay.loops import goes_on
from forebay.node.breakers import InnerBreakers
from forebay.node.death import Death, OomCounter
from forebay.node.frames import Breakers, Checkpoints, FrameError, ItemResult, Parts, Ready, RunItem
from forebay.node.lane import Lane
from forebay.node.replica import Replica, ReplicaSpec
from forebay.node.scaling import LOOK_S, Scaling
from forebay.node.slot import Slot
from forebay.ports.clock import Clock

WATCH_S = 1.0  # how often the memory of the children is looked at
NOT_NEEDED = "not needed any more"
STOP_GRACE_S = 5.0  # a retired child has this long to end by itself


class ChildOf:
    """The lane's view of one child: leases in, frames out."""

    def __init__(self, slot: Slot, replica: Replica, lane: Lane) -> None:
        self._slot = slot
        self._replica = replica
        self._lane = lane
        self._stopping: asyncio.Task[Death] | None = None

    def run(
        self, run: int, task: str, items: Sequence[tuple[int, Lease]], *, singles: bool, level: int = 0
    ) -> None:
        """Send these; never blocks. What cannot be sent comes back by `returned`."""
        sent = [
            RunItem(
                tag,
                lease.job.payload,
                lease.attempt,
                lease.job.id,
                lease.job.deadline_at,
                lease.checkpoint,
                lease.job.tenant,
            )
            for tag, lease in items
        ]
        try:
            taken = self._replica.run(run, task, sent, singles=singles, level=level)
        except FrameError:
            taken = False
        if not taken:
            self._lane.returned([tag for tag, _ in items])

    def cancel(self, tag: int) -> None:
        """Ask for one item to stop."""
        self._replica.cancel(tag)

    def give_back(self) -> None:
        """Ask for everything unstarted."""
        self._replica.give_back()

    def stop(self) -> None:
        """Let it finish what it runs and end."""
        self._slot.state = "retiring"
        self._stopping = asyncio.ensure_future(self._replica.stop(STOP_GRACE_S))

    def kill(self, reason: str) -> None:
        """End it now, with all it started."""
        self._replica.kill(reason)


class Supervisor:
    """Owns the slots of one lane. Also the ReplicaOwner its children report to."""

    def __init__(
        self,
        lane: Lane,
        slots: Sequence[Slot],
        *,
        spec_of: Callable[[Slot], ReplicaSpec],
        clock: Clock,
        oom: OomCounter,
        breakers: InnerBreakers,
        policy: RestartPolicy | None = None,
        on_restart: Callable[[str, Mapping[str, object]], None] | None = None,
        on_output: Callable[[Slot, str], None] | None = None,
        scaling: Scaling | None = None,
    ) -> None:
        self.lane = lane
        self.slots = list(slots)
        self._scaling = scaling
        self._spec_of = spec_of
        self._clock = clock
        self._oom = oom
        self._breakers = breakers
        self._policy = policy or RestartPolicy()
        self._on_restart = on_restart
        self._on_output = on_output
        self._by_replica: dict[int, Slot] = {}  # id(replica) -> slot
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._memory_max_b = min(
            (one.recycle_memory_b for one in lane.specs.values() if one.recycle_memory_b), default=None
        )

    def start(self) -> None:
        """Begin to start every child; returns at once."""
        if self._scaling is not None:
            for slot in self.slots[self._scaling.replicas :]:
                slot.parked, slot.state = True, "parked"
            scaling = self._scaling
            self._spawn(goes_on(lambda: self._scale(scaling), "have as many workers as are needed"))
        for slot in self.slots:
            if not slot.parked:
                self._spawn(self._start(slot, 0.0))
        if self._memory_max_b is not None:
            self._spawn(goes_on(self._watch_memory, "look at the memory of workers"))

    def drain(self) -> None:
        """Start no child any more, and end those that still load: nothing new will run. Twice is harmless."""
        self._stopping = True
        for task in list(self._tasks):
            task.cancel()
        for replica in self._living():
            if replica.ready is None:
                replica.kill("the node stops")

    async def close(self, grace_s: float) -> None:
        """Stop every child; what still runs after `grace_s` is killed. Twice is harmless."""
        self.drain()
        await asyncio.gather(*(one.stop(grace_s) for one in self._living()), return_exceptions=True)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- ReplicaOwner --------------------------------------------------------------------------------

    def on_ready(self, replica: Replica, ready: Ready) -> None:
        """The child is loaded and warm."""
        slot = self._by_replica[id(replica)]
        slot.state = "ready"
        slot.ready_at = self._clock.now()
        self.lane.child_ready(slot.number, ChildOf(slot, replica, self.lane), slot.name)

    def on_results(self, replica: Replica, results: list[ItemResult], busy_s: float) -> None:
        """Items ended."""
        failed = any(one.error is not None for one in results)
        self.lane.results(results, busy_s, replica.log.evidence(failed=failed))

    def on_pass(self, replica: Replica, run: int, size: int) -> None:
        """Another call for part of a failed batch begins."""
        self.lane.passed(self._by_replica[id(replica)].number)

    def on_progress(self, replica: Replica, reports: list[tuple[int, float, str]]) -> None:
        """Newest progress of running items."""
        for tag, share, message in reports:
            self.lane.progressed(tag, json.dumps({"share": share, "message": message}).encode())

    def on_news(self, replica: Replica, news: Checkpoints | Parts | Breakers) -> None:
        """Checkpoints to be stored, parts of outputs, or changes of breakers."""
        if isinstance(news, Parts):
            self.lane.parts(news.items)
        elif isinstance(news, Checkpoints):
            self.lane.checkpointed(news.items)
        else:
            self._breakers.heard(self._by_replica[id(replica)], news)

    def on_returned(self, replica: Replica, tags: list[int]) -> None:
        """These never started and will not."""
        if tags:
            self.lane.returned(tags)

    def on_death(self, replica: Replica, death: Death) -> None:
        """The process is gone: tell the lane, count, and start another when its time comes."""
        slot = self._by_replica.pop(id(replica))
        slot.replica = None
        slot.breakers.clear()
        self.lane.facts.breakers_gone(slot.name)
        lived_s = None if slot.ready_at is None else self._clock.now() - slot.ready_at
        slot.ready_at = None
        task, jobs = ("", ()) if death.idle else self.lane.works_on(slot.number, death.tag)
        error = JobError("worker_lost", death.message, death.code)
        traces = Traces(death.tag, death.idle, death.arrived)
        self.lane.child_died(slot.number, error, traces, log=replica.log.since_mark())
        if self._stopping:
            slot.state = "stopped"
            return
        wanted = slot.state == "retiring" or bool(death.killed_for and death.was_ready)
        wanted = wanted or death.killed_for == NOT_NEEDED
        if not wanted:
            slot.last_crash = death.message
            quick = self._policy.quick(lived_s=lived_s)
            slot.quick_deaths = slot.quick_deaths + 1 if quick else 1
        if slot.parked:
            slot.state, slot.quick_deaths = "parked", 0
            return
        reason = "recycled" if slot.state == "retiring" else death.code
        self._count_restart(reason, message=death.message, worker=slot.name, task=task, jobs=list(jobs))
        slot.restarts += 1
        delay_s = 0.0 if wanted else self._policy.delay_s(quick_deaths=slot.quick_deaths)
        looping = not wanted and self._policy.looping(quick_deaths=slot.quick_deaths)
        slot.state = "crash_loop" if looping else "backoff"
        self._spawn(self._start(slot, delay_s))

    # -- inside --------------------------------------------------------------------------------------

    async def _start(self, slot: Slot, delay_s: float) -> None:
        self.lane.child_starting(slot.number, in_s=delay_s)
        if delay_s:
            await self._clock.sleep(delay_s)
        if self._stopping:
            return
        if slot.parked:
            slot.state = "parked"
            self.lane.child_unwanted(slot.number)
            return
        if slot.state != "crash_loop":
            slot.state = "starting"
        try:
            replica = await Replica.start(self._spec_of(slot), self, clock=self._clock, oom=self._oom)
        except OSError as error:  # no process can be had now (limits); try again later
            slot.last_crash = f"no process could be started: {error}"
            slot.quick_deaths += 1
            self._spawn(self._start(slot, max(1.0, self._policy.delay_s(quick_deaths=slot.quick_deaths))))
            return
        self._started(slot, replica)

    def _started(self, slot: Slot, replica: Replica) -> None:
        slot.replica = replica
        self._by_replica[id(replica)] = slot
        on_output = self._on_output
        if on_output is not None:
            replica.log.sink = lambda line: on_output(slot, line)
        if slot.parked:  # while its process came to be
            replica.kill(NOT_NEEDED)

    async def _scale(self, scaling: Scaling) -> None:
        """Have as many children as the work needs, now and again."""
        await self._clock.sleep(LOOK_S)
        scaling.look(self.slots)
        for slot in scaling.to_end(self.slots):
            self._park(slot)
        parked = [slot for slot in self.slots if slot.parked]
        for slot in parked[: max(0, scaling.replicas - len(self.slots) + len(parked))]:
            slot.parked = False
            if slot.state == "parked":  # else the child in it, or the one to come, is on its way
                self._spawn(self._start(slot, 0.0))

    def _park(self, slot: Slot) -> None:
        """Want no child here: one that serves ends when it is empty."""
        slot.parked = True
        if slot.replica is not None and slot.replica.ready is None:
            slot.replica.kill(NOT_NEEDED)
        elif slot.replica is not None:
            self.lane.retire(slot.number)

    def _living(self) -> list[Replica]:
        return [slot.replica for slot in self.slots if slot.replica and slot.replica.death is None]

    async def _watch_memory(self) -> None:
        """Retire one child at a time when it has grown too large; its successor starts when it is gone."""
        assert self._memory_max_b is not None
        await self._clock.sleep(WATCH_S)
        wanted = [slot for slot in self.slots if not slot.parked]
        if any(slot.state != "ready" for slot in wanted):
            return
        for slot in wanted:
            if slot.replica is not None and slot.replica.memory_b() > self._memory_max_b:
                self.lane.retire(slot.number)
                break

    def _count_restart(self, reason: str, **facts: object) -> None:
        if self._on_restart is not None:
            self._on_restart(reason, facts)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
