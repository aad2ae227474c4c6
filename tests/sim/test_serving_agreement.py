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
from forebay.node.lane import Lane
from forebay.sim.arrivals import poisson
from forebay.sim.chance import Chance
from forebay.sim.service import Service
from forebay.sim.serving import ServingWorld, Wanted
from tests.sim.test_agreement import StandIn, VirtualClock, VirtualLoop

SERVICE = Service(fixed_s=0.020, each_s=0.002)
CAPACITY = 16 / 0.052
FIRST_S = 1.0  # the replica is ready before


class Child(StandIn):
    """Says what it was busy, as a child does."""

    def end(self, piece):
        self.next()
        self.lane.results([Outcome(tag, b"1") for tag, _ in piece], self.service.run_s(len(piece), None))


def model(batch_max, discipline=Discipline.DEADLINE):
    kind = "class" if batch_max > 1 else "function"
    return TaskSpec(name="M", kind=kind, batch_max=batch_max, discipline=discipline)


def ends_at(asked):
    return asked[-1].at + max(2.0, asked[-1].deadline_s)


def by_the_runtime(asked, batch_max, discipline=Discipline.DEADLINE):
    """Return what became of each, and the sizes of the runs."""
    loop, started, told = VirtualLoop(), [], {}

    async def main():
        clock = VirtualClock(loop)
        spec = model(batch_max, discipline)
        lane = Lane([spec], broker=MemoryBroker(ledger=Ledger()), clock=clock, worker="w")
        lane.child_ready(1, Child(lane, loop, SERVICE, started))

        def come(number, wanted):
            now = clock.now()
            job = Job(
                f"r{number}", "M", b"%d" % number, now, now, wanted.priority, 2, None,
                now + wanted.deadline_s, wanted.tenant,
            )  # fmt: skip
            verdict = lane.requests.offer(job, lambda ended: told.__setitem__(number, ended.end.value))
            if isinstance(verdict, Rejected):
                told[number] = verdict.reason.value

        for number, wanted in enumerate(asked):
            loop.call_at(wanted.at, come, number, wanted)
        await asyncio.sleep(ends_at(asked))
        lane.drain()
        await lane.close()

    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(main())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    return [told[number] for number in range(len(asked))], [len(run) for _, run in started]


def by_the_simulator(asked, batch_max, discipline=Discipline.DEADLINE):
    world = ServingWorld([model(batch_max, discipline)], {"M": SERVICE}, asked)
    answers = world.play(until=ends_at(asked))
    ends = [one.end.value if one.refused is None else one.refused.reason.value for one in answers]
    return ends, [items for _, _, items, _ in world.runs]


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
