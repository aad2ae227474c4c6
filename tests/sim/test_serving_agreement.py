"""Requests in the simulator and in the runtime: the same are let in, in the same batches, with the same ends.

The runtime is the real Lane on an event loop whose time is virtual; only the child is a stand-in.
"""

import asyncio

import pytest

from forebay.brokers.memory import MemoryBroker
from forebay.core.actions import Outcome
from forebay.core.admission import Rejected
from forebay.core.codel import Discipline
from forebay.core.job import Job
from forebay.core.ledger import Ledger
from forebay.core.task import TaskSpec
from forebay.core.variants import LadderPolicy, Rung
from forebay.node.lane import Lane
from forebay.sim.arrivals import poisson
from forebay.sim.chance import Chance
from forebay.sim.service import Service
from forebay.sim.serving import ServingWorld, Wanted
from tests.sim.test_agreement import StandIn, VirtualClock, VirtualLoop

SERVICE = Service(fixed_s=0.020, each_s=0.002)
CAPACITY = 16 / 0.052
# Odd numbers: where a sum of round ones is exactly a bound, rounding decides, and differs between the clocks.
QUICKER = (Service(fixed_s=0.0081, each_s=0.00079), Service(fixed_s=0.00311, each_s=0.000237))
LADDER = LadderPolicy(rungs=(Rung(), Rung()), stay_s=0.3)
FIRST_S = 1.0  # the replica is ready before


class Child(StandIn):
    """Says what it was busy, as a child does."""

    def end(self, piece):
        took_s = self.took_s
        self.next()
        self.lane.results([Outcome(tag, b"1") for tag, _ in piece], took_s)


def model(batch_max, discipline=Discipline.DEADLINE, ladder=None):
    kind = "class" if batch_max > 1 else "function"
    return TaskSpec(name="M", kind=kind, batch_max=batch_max, discipline=discipline, ladder=ladder)


def ends_at(asked):
    return asked[-1].at + max(2.0, asked[-1].deadline_s)


def by_the_runtime(asked, batch_max, discipline=Discipline.DEADLINE, ladder=None):
    """Return what became of each, and the sizes of the runs; with a ladder the level of either too."""
    loop, started, told = VirtualLoop(), [], {}

    async def main():
        clock = VirtualClock(loop)
        spec = model(batch_max, discipline, ladder)
        lane = Lane([spec], broker=MemoryBroker(ledger=Ledger()), clock=clock, worker="w")
        child = Child(lane, loop, SERVICE, started, quicker=QUICKER)
        lane.child_ready(1, child)

        def come(number, wanted):
            now = clock.now()
            job = Job(
                f"r{number}", "M", b"%d" % number, now, now, wanted.priority, 2, None,
                now + wanted.deadline_s, wanted.tenant,
            )  # fmt: skip
            verdict = lane.requests.offer(job, lambda ended: told.__setitem__(number, end_of(ended)))
            if isinstance(verdict, Rejected):
                told[number] = verdict.reason.value

        for number, wanted in enumerate(asked):
            loop.call_at(wanted.at, come, number, wanted)
        await asyncio.sleep(ends_at(asked))
        lane.drain()
        await lane.close()
        levels.extend(child.levels)

    def end_of(ended):
        return ended.end.value if ladder is None else (ended.end.value, ended.request.level)

    levels = []
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(main())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    sizes = [len(run) for _, run in started]
    runs = sizes if ladder is None else list(zip(sizes, levels, strict=True))
    return [told[number] for number in range(len(asked))], runs


def by_the_simulator(asked, batch_max, discipline=Discipline.DEADLINE, ladder=None):
    spec = model(batch_max, discipline, ladder)
    world = ServingWorld([spec], {"M": SERVICE}, asked, levels={"M": QUICKER})
    answers = world.play(until=ends_at(asked))
    ends = [one.end.value if one.refused is None else one.refused.reason.value for one in answers]
    sizes = [items for _, _, items, _ in world.runs]
    if ladder is None:
        return ends, sizes
    levels = [one.level for one in answers]
    ends = [
        end if one.refused else (end, level) for end, one, level in zip(ends, answers, levels, strict=True)
    ]
    return ends, list(zip(sizes, world.run_levels, strict=True))


def trace(times, seed, *, deadline_s=0.2, kinds=False):
    """Return requests; no two come in the same instant."""
    chance = Chance(seed)
    return [
        Wanted(
            FIRST_S + at,
            "M",
            deadline_s,
            tenant="ab"[chance.bits() % 2] if kinds else "",
            priority=(2, 5, 8)[chance.bits() % 3] if kinds else 5,
        )
        for at in poisson(Chance(seed), CAPACITY * times, start=0.0, until=2.0)
    ]


@pytest.mark.parametrize("times", [0.3, 0.9, 1.5, 5.0])
@pytest.mark.parametrize("kinds", [False, True])
def test_both_let_in_the_same_and_run_the_same_batches(times, kinds):
    asked = trace(times, seed=7, kinds=kinds)
    ends, runs = by_the_runtime(asked, 16)
    simulated, simulated_runs = by_the_simulator(asked, 16)
    assert runs == simulated_runs
    assert ends == simulated
    assert "done" in ends and (times < 1.0 or "cannot_meet_deadline" in ends)


@pytest.mark.parametrize("discipline", [Discipline.NEWEST, Discipline.CODEL])
def test_both_shed_the_same_under_each_discipline(discipline):
    asked = trace(4.0, seed=8, kinds=True, deadline_s=10.0)
    ends, runs = by_the_runtime(asked, 16, discipline)
    simulated, simulated_runs = by_the_simulator(asked, 16, discipline)
    assert runs == simulated_runs
    assert ends == simulated and "shed" in ends


@pytest.mark.parametrize("times", [0.9, 2.0, 5.0])
@pytest.mark.parametrize("kinds", [False, True])
def test_both_run_the_same_batches_by_the_same_variants(times, kinds):
    calm = [one._replace(at=one.at + 2.2) for one in trace(0.2, seed=9)]
    asked = trace(times, seed=7, kinds=kinds) + calm
    ends, runs = by_the_runtime(asked, 16, ladder=LADDER)
    simulated, simulated_runs = by_the_simulator(asked, 16, ladder=LADDER)
    assert runs == simulated_runs
    assert ends == simulated
    levels = [level for _, level in runs]
    assert times < 2 or max(levels) >= 1
