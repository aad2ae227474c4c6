"""The simulator and the runtime make the same decisions: one trace, both worlds, the same runs.

The runtime is the real Lane over the memory broker on an event loop whose time is virtual; only children
are stand-ins with the simulator's service times.
"""

import asyncio
import copy
import itertools
from collections import deque

import pytest

from forebay.brokers.memory import MemoryBroker
from forebay.core.actions import Outcome
from forebay.core.breaker import BreakerPolicy, CircuitBreaker
from forebay.core.dispatcher import Dispatcher
from forebay.core.estimator import Estimator
from forebay.core.guard import guards_of
from forebay.core.job import Job, JobError
from forebay.core.ledger import Ledger
from forebay.core.task import TaskSpec
from forebay.core.variants import LadderPolicy, Rung
from forebay.node.lane import Lane
from forebay.sim import arrivals
from forebay.sim.chance import Chance
from forebay.sim.node import Lane as SimLane
from forebay.sim.plan import START, Plan, PlannedJob, Script, draw_plan
from forebay.sim.service import Service
from forebay.sim.world import World
from tests.sim import harness
from tests.sim.queueing import Unhurried

BEGIN = START + 1.0
SERVICE = Service(fixed_s=0.02, each_s=0.002)
FAST = Service(each_s=0.0007)


def bursts(seed, size):
    return arrivals.bursts(Chance(seed), start=BEGIN, until=BEGIN + 3, every_s=0.5, size=size, width_s=0.02)


TRACES = {
    "one": [BEGIN],
    "lone caller": arrivals.steady(7.0, start=BEGIN, until=BEGIN + 5),
    "steady": arrivals.steady(97.0, start=BEGIN, until=BEGIN + 1.5),
    "poisson, light": arrivals.poisson(Chance(1), 10.0, start=BEGIN, until=BEGIN + 8),
    "poisson, busy": arrivals.poisson(Chance(2), 60.0, start=BEGIN, until=BEGIN + 2),
    "poisson, overloaded": arrivals.poisson(Chance(3), 400.0, start=BEGIN, until=BEGIN + 0.4),
    "small bursts": bursts(4, 5),
    "large bursts": bursts(5, 40),
    "a day": arrivals.day_curve(
        Chance(6), low_per_s=2, high_per_s=120, day_s=2, start=BEGIN, until=BEGIN + 2
    ),
}


BREAKER = BreakerPolicy(failures=3, window_s=60.0, open_s=1.3)


LADDER = LadderPolicy(rungs=(Rung(enter=0.5, leave=0.3), Rung(enter=0.6, leave=0.4)), stay_s=0.4)
QUICKER = (Service(fixed_s=0.01, each_s=0.001), Service(fixed_s=0.004, each_s=0.0003))
QUEUE_MAX = 100


def spec(batch_max, breaker=None, ladder=None):
    return TaskSpec(name="t", batch_max=batch_max, batch_wait_s=0.01, breaker=breaker, ladder=ladder)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits: when nothing is ready, the time jumps to the next timer."""

    def __init__(self):
        super().__init__()
        self.at = 0.0
        self._selector.select = lambda timeout=None: []

    def time(self):
        return self.at

    def _run_once(self):
        if not self._ready:
            while self._scheduled and self._scheduled[0]._cancelled:
                self._scheduled[0]._scheduled = False
                import heapq

                heapq.heappop(self._scheduled)
                self._timer_cancelled_count -= 1
            assert self._scheduled, "nothing is ready and nothing is scheduled: it would hang"
            self.at = max(self.at, self._scheduled[0]._when)
        super()._run_once()


class VirtualClock:
    def __init__(self, loop):
        self._loop = loop

    def now(self):
        return START + self._loop.time()

    def random(self):
        return 0.5

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)


class StandIn:
    """A child that takes the simulator's time and runs one thing after another; what is `bad` fails."""

    def __init__(self, lane, loop, service, started, bad=frozenset(), quicker=QUICKER):
        self.lane, self.loop, self.service, self.started = lane, loop, service, started
        self.bad, self.quicker, self.levels = bad, quicker, []  # the level of each that started
        self.works, self.busy = deque(), False

    def run(self, run, task, items, *, singles, level=0):
        pieces = [[item] for item in items] if singles else [list(items)]
        self.works.extend((piece, level) for piece in pieces)
        if not self.busy:
            self.next()

    def next(self):
        if not self.works:
            self.busy = False
            return
        self.busy = True
        piece, level = self.works.popleft()
        self.levels.append(level)
        self.started.append((self.loop.time() + START, [lease.job.payload for _, lease in piece]))
        service = self.quicker[level - 1] if level else self.service
        self.took_s = service.run_s(len(piece), None)
        self.loop.call_later(self.took_s, self.end, piece)

    def end(self, piece):
        self.next()
        failed = JobError("failed", "bad", "ValueError")
        outcomes = [
            Outcome(tag, None, failed) if int(lease.job.payload) in self.bad else Outcome(tag, b"1")
            for tag, lease in piece
        ]
        self.lane.results(outcomes, busy_s=0.0)

    def cancel(self, tag): ...
    def give_back(self): ...
    def stop(self): ...
    def kill(self): ...


def by_the_runtime(times, batch_max, replicas, service, breaker=None, bad=frozenset(), ladder=None):
    loop, started, ended = VirtualLoop(), [], {}
    estimator = Estimator(task="t", batch_max=batch_max)

    async def main():
        clock, broker = VirtualClock(loop), MemoryBroker(ledger=Ledger())
        estimators = {"t": estimator}
        specs = [spec(batch_max, breaker, ladder)]
        guards = guards_of(specs, (), {} if breaker is None else {"t": CircuitBreaker(breaker)})
        lane = Lane(
            specs, broker=broker, clock=clock, worker="w", estimators=estimators, guards=guards,
            bounds={"t": (QUEUE_MAX, 1 << 30)},
        )  # fmt: skip
        broker.on_work(lane.knock)
        for replica in range(1, replicas + 1):
            lane.child_ready(replica, StandIn(lane, loop, service, started, bad))

        def submit(number):
            now, tries = clock.now(), 1 if number in bad else 3
            job = Job(broker.new_id(now), "t", b"%d" % number, now, now, attempts_max=tries)
            asyncio.ensure_future(broker.enqueue([job], now=clock.now()))

        for number, at in enumerate(times):
            loop.call_at(at - START, submit, number)
        await asyncio.sleep(times[-1] - START + 0.001)
        for _ in range(10_000):
            if bad:  # the janitor's part: what waited for a time is queued again
                await broker.sweep(limit=1000, now=clock.now())
            records = broker._ledger._shelf.jobs.values()
            if all(entry.finished_at is not None for entry in records) and lane.idle:
                break
            await asyncio.sleep(0.05)
        ended.update({int(entry.job.payload): (entry.finished_at, entry.degraded) for entry in records})
        lane.drain()
        await lane.close()

    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(main())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    return [(at, [int(p) for p in payloads]) for at, payloads in started], ended, estimator


def by_the_simulator(times, batch_max, replicas, service, breaker=None, bad=frozenset(), ladder=None):
    plan = Plan(
        seed=1,
        lanes=((spec(batch_max, breaker, ladder),),),
        services={"t": service},
        levels={"t": QUICKER},
        queue_max=QUEUE_MAX,
        jobs=tuple(
            PlannedJob(i, at, "t", Script.BAD, attempts_max=1) if i in bad else PlannedJob(i, at, "t")
            for i, at in enumerate(times)
        ),
        replicas=replicas,
        lease_s=30.0,
        latency_s=0.0,
        load_s=0.0,
        chaos_s=0.0,
    )
    world = World(
        plan, Ledger(), keep_history=True, check_all_every=10**9, checker=Unhurried(), live_every_s=0.0
    )
    world.run()
    number = {job_id: job.number for job_id, job in world.scripts.items()}
    started = [(line[0], [number[i] for i in line[5]]) for line in world.history if line[1] == "start"]
    ended = {
        number[i]: (s.record.standing.finished_at, s.record.standing.degraded)
        for i, s in world.checker.jobs.items()
    }
    return started, ended, world.forecasts.estimators["t"]


def agree(times, batch_max, replicas, service):
    lived, lived_end, lived_estimator = by_the_runtime(times, batch_max, replicas, service)
    played, played_end, played_estimator = by_the_simulator(times, batch_max, replicas, service)
    assert sorted(n for _, batch in lived for n in batch) == list(range(len(times)))
    for (at, batch), (expected_at, expected) in zip(lived, played, strict=True):
        assert batch == expected and at == pytest.approx(expected_at, abs=1e-6)
    end_alike(lived_end, played_end)
    foretell_alike(lived_estimator, played_estimator, now=max(played_end.values())[0] + 1)


def end_alike(lived, played):
    """Every job ended at the same instant, made by the same variant."""
    assert sorted(lived) == sorted(played)
    for number, (at, level) in lived.items():
        assert at == pytest.approx(played[number][0], abs=1e-6) and level == played[number][1]


def foretell_alike(lived, played, *, now):
    """Both worlds taught their estimators the same: what runs take, who is ready, how fast jobs leave."""
    for known, expected in zip(lived.service._samples, played.service._samples, strict=True):
        assert known[:2] == pytest.approx(expected[:2], abs=1e-6)
    assert lived.replicas == played.replicas
    assert lived.drain_per_s(now=now) == pytest.approx(played.drain_per_s(now=now), rel=0.01)


@pytest.mark.parametrize("batch_max", [1, 4, 16])
@pytest.mark.parametrize("trace", TRACES)
def test_the_lane_and_the_simulator_start_the_same_runs_at_the_same_instants(trace, batch_max):
    agree(TRACES[trace], batch_max, 1, SERVICE)


@pytest.mark.slow
@pytest.mark.parametrize("batch_max", [1, 4, 16])
@pytest.mark.parametrize("trace", TRACES)
def test_they_agree_with_two_replicas_and_with_a_fast_model_too(trace, batch_max):
    agree(TRACES[trace], batch_max, 2, SERVICE)
    agree(TRACES[trace], batch_max, 1, FAST)


@pytest.mark.parametrize("batch_max", [1, 4])
def test_they_agree_while_a_breaker_is_open_and_about_its_probes(batch_max):
    times = arrivals.steady(20.0, start=BEGIN, until=BEGIN + 4)
    bad = frozenset(range(10, 18))  # ten in a row, and the replica would be replaced
    lived, _, _ = by_the_runtime(times, batch_max, 1, SERVICE, BREAKER, bad)
    played, _, _ = by_the_simulator(times, batch_max, 1, SERVICE, BREAKER, bad)
    for (at, batch), (expected_at, expected) in zip(lived, played, strict=True):
        assert batch == expected and at == pytest.approx(expected_at, abs=1e-6)
    assert sorted(n for _, batch in lived for n in batch) == list(range(len(times)))
    gaps = [later[0] - earlier[0] for earlier, later in itertools.pairwise(lived)]
    assert sum(gap > BREAKER.open_s for gap in gaps) >= 2, "it was open, and open again after a probe"


@pytest.mark.parametrize("batch_max", [1, 4, 16])
@pytest.mark.parametrize("trace", ["steady", "poisson, overloaded", "large bursts"])
def test_they_run_the_same_jobs_by_the_same_variants(trace, batch_max):
    times = TRACES[trace]
    lived, lived_end, _ = by_the_runtime(times, batch_max, 1, SERVICE, ladder=LADDER)
    played, played_end, _ = by_the_simulator(times, batch_max, 1, SERVICE, ladder=LADDER)
    for (at, batch), (expected_at, expected) in zip(lived, played, strict=True):
        assert batch == expected and at == pytest.approx(expected_at, abs=1e-6)
    end_alike(lived_end, played_end)
    levels = {level for _, level in played_end.values()}
    if trace == "poisson, overloaded":
        assert levels >= {0, 1}, "it was never full"


class Recording(Dispatcher):
    """Writes down every input with its time, and what every poll answered."""

    INPUTS = (
        "knock", "leased", "replica_ready", "replica_died", "results", "passed", "progressed", "returned",
        "renewed", "renew_now", "retire", "filled", "drain", "abandon", "poll",
    )  # fmt: skip
    tapes: list

    def __init__(self, *args, **kwargs):
        self.made_of = (args, copy.deepcopy(kwargs))  # breakers keep their state
        super().__init__(*args, **kwargs)
        self.tape = []
        self.tapes.append(self)

    def __getattribute__(self, name):
        attribute = super().__getattribute__(name)
        if name not in Recording.INPUTS:
            return attribute

        def recorded(*args, **kwargs):
            answer = attribute(*args, **kwargs)
            self.tape.append((name, args, kwargs, repr(answer)))
            return answer

        return recorded


@pytest.mark.parametrize("seed", range(900, 915))
def test_a_recorded_trace_gives_the_same_actions_again(seed, monkeypatch):
    import forebay.sim.node

    Recording.tapes = []
    monkeypatch.setattr(forebay.sim.node, "Dispatcher", Recording)
    World(draw_plan(seed), Ledger(), reopen=harness.reopen).run()
    assert Recording.tapes and SimLane
    for recorded in Recording.tapes:
        args, kwargs = recorded.made_of
        again = Dispatcher(*args, **kwargs)
        for name, call_args, call_kwargs, answer in recorded.tape:
            assert repr(getattr(again, name)(*call_args, **call_kwargs)) == answer
