"""A supervisor whose children start, fail, die and are parked in any order: each place has one child at most,
and in the end there are as many as are wanted."""

import asyncio
import heapq
import itertools
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.brokers.memory import MemoryBroker
from forebay.core.job import Job
from forebay.core.scaling import ScalePolicy
from forebay.core.task import TaskSpec
from forebay.node import supervisor as module
from forebay.node.breakers import InnerBreakers
from forebay.node.death import Death, OomCounter
from forebay.node.facts import NoFacts
from forebay.node.lane import Lane
from forebay.node.scaling import scaling_of
from forebay.node.slot import Slot
from forebay.node.supervisor import Supervisor

PLACES = 3
STARTS_S = 0.4  # until there is a process: longer than from one look to the next


class HandClock:
    """Time moves when it is told to."""

    def __init__(self):
        self.at = 1_000.0
        self._sleeping, self._order = [], itertools.count()

    def now(self):
        return self.at

    def random(self):
        return 0.5

    async def sleep(self, seconds):
        if seconds <= 0:
            return await asyncio.sleep(0)
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleeping, (self.at + seconds, next(self._order), woken))
        return await woken

    async def advance(self, seconds):
        until = self.at + seconds
        while self._sleeping and self._sleeping[0][0] <= until:
            self.at, _, woken = heapq.heappop(self._sleeping)
            if not woken.done():
                woken.set_result(None)
            await settle()
        self.at = until
        await settle()


async def settle():
    for _ in range(12):
        await asyncio.sleep(0)


class Process:
    """A child that loads, dies and stops when the test says so."""

    made, refuse = [], False

    def __init__(self, slot, owner):
        self.slot, self.owner = slot, owner
        self.ready, self.death, self.ends_for = None, None, None
        self.items = []
        self.log = SimpleNamespace(sink=None, evidence=lambda failed: "", since_mark=lambda: "")
        self._gone = asyncio.Event()

    @classmethod
    async def start(cls, slot, owner, *, clock, oom):
        await clock.sleep(STARTS_S)
        if cls.refuse:
            raise OSError("no process can be had")
        one = cls(slot, owner)
        cls.made.append(one)
        return one

    def loaded(self):
        self.ready = object()
        self.owner.on_ready(self, self.ready)

    def run(self, run, task, items, *, singles, level=0):
        self.items += items
        return True

    def give_back(self):
        pass

    def cancel(self, tag):
        pass

    def memory_b(self):
        return 1

    def kill(self, reason):
        self.ends_for = self.ends_for or reason

    async def stop(self, grace_s):
        self.ends_for = self.ends_for or ""
        await self._gone.wait()

    def end(self, reason=None):
        self.death = Death(
            code="signal",
            message="it ended",
            killed_for=self.ends_for or "",
            was_ready=self.ready is not None,
        )
        self._gone.set()
        self.owner.on_death(self, self.death)


class Set:
    def __init__(self):
        Process.made, Process.refuse = [], False
        self.clock, self.broker = HandClock(), MemoryBroker()
        spec = TaskSpec(name="t", kind="class", replicas=PLACES, replicas_least=1)
        self.lane = Lane([spec], broker=self.broker, clock=self.clock, worker="w", facts=NoFacts())
        scaling = scaling_of(self.lane, spec, ScalePolicy(), broker=self.broker, clock=self.clock)
        scaling.look = lambda slots: None
        self.scaling, self.scaler = scaling, scaling._scaler
        self.slots = [Slot(number=n, name=f"w/t/{n}", device="cpu", gpu=None) for n in range(PLACES)]
        self.supervisor = Supervisor(
            self.lane, self.slots, spec_of=lambda slot: slot, clock=self.clock, oom=OomCounter(),
            breakers=InnerBreakers(lambda: [], facts=NoFacts(), clock=self.clock), scaling=scaling,
        )  # fmt: skip
        self.jobs = itertools.count()

    @property
    def living(self):
        return [one for one in Process.made if one.death is None]

    async def step(self, what, which):
        living = self.living
        one = living[which % len(living)] if living else None
        match what:
            case "wants":
                self.scaler.replicas = 1 + which % PLACES
            case "time":
                await self.clock.advance((0.1, 0.25, 0.3, 1.0, 5.0, 40.0)[which % 6])
            case "loads" if one is not None and one.ready is None and one.ends_for is None:
                one.loaded()
            case "ends" if ending := [each for each in living if each.ends_for is not None]:
                ending[which % len(ending)].end()
            case "dies" if one is not None:
                one.end()
            case "refuses":
                Process.refuse = which % 2 == 0
            case "works":
                job = Job(id=f"j{next(self.jobs)}", task="t", payload=b"1", created_at=1.0, run_at=1.0)
                await self.broker.enqueue([job], now=self.clock.at)
                self.lane.knock("t")
        await settle()

    def check(self):
        for slot in self.slots:
            assert sum(one.slot is slot for one in self.living) <= 1, "two children in one place"
        serving = {one.slot.number for one in self.living if one.ready is not None}
        assert set(self.lane.dispatcher.hand.replicas) == serving
        assert self.lane.crew.count == len(serving)
        for slot in self.slots:
            child = next((one for one in self.living if one.slot is slot), None)
            assert slot.replica is child
            loads = child is not None and child.ready is None
            assert not (slot.parked and loads) or child.ends_for is not None, "nobody wants what it loads"
            if slot.state == "parked":
                assert slot.parked and child is None

    async def come_to_rest(self):
        Process.refuse = False
        for _ in range(200):
            for one in self.living:
                if one.ends_for is not None:
                    one.end()
                elif one.ready is None:
                    one.loaded()
            await self.clock.advance(1.0)
        serving = [one.slot for one in self.living if one.ready is not None]
        assert len(self.living) == len(serving)
        busy = sum(bool(self.lane.in_hand(slot.number)) for slot in serving)
        assert len(serving) == max(self.scaler.replicas, busy)
        assert {slot.state for slot in serving} == {"ready"}
        assert {slot.state for slot in self.slots if slot not in serving} <= {"parked"}
        assert not self.lane.crew._starting

    async def close(self):
        self.supervisor.drain()
        await settle()
        for one in self.living:
            one.end()
        await self.supervisor.close(0.0)
        await self.lane.close()
        assert not self.living


STEPS = (
    "wants",
    "wants",
    "time",
    "time",
    "time",
    "loads",
    "loads",
    "ends",
    "ends",
    "dies",
    "refuses",
    "works",
)


@pytest.fixture(autouse=True)
def processes(monkeypatch):
    monkeypatch.setattr(module, "Replica", Process)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), max_size=60))
def test_whoever_dies_when_each_place_has_one_child_and_in_the_end_there_are_as_many_as_are_wanted(steps):
    async def run():
        of = Set()
        of.supervisor.start()
        await settle()
        for what, which in steps:
            await of.step(what, which)
            of.check()
        await of.come_to_rest()
        await of.close()

    asyncio.run(run())
