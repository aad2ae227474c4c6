"""A lane keeps jobs whose input is in quarantine from its children: those it leases, and those in its hand."""

import asyncio

from forebay.brokers.memory import MemoryBroker
from forebay.clock import SystemClock
from forebay.core import settle
from forebay.core.job import Job, JobError, Query
from forebay.core.replicas import Traces
from forebay.core.settle import SettlePolicy
from forebay.core.task import TaskSpec
from forebay.node.barring import Barring
from forebay.node.facts import NoFacts
from forebay.node.lane import Lane

LOST = JobError("worker_lost", "SIGSEGV", "signal", 1)
SPEC = TaskSpec(name="echo", settle=SettlePolicy(deaths_max=1, quarantine_deaths=2))


class Child:
    """Takes what it is sent, in order, and finishes nothing."""

    def __init__(self):
        self.sent = []

    def run(self, run, task, items, *, singles, level=0):
        self.sent += items

    def cancel(self, tag):
        pass

    give_back = stop = lambda self: None
    kill = cancel


class Facts(NoFacts):
    def __init__(self):
        self.told = []

    def condemned(self, deadly):
        self.told.append((deadly.task, deadly.deaths))


class Rig:
    """A lane with children that die of the first thing they are sent."""

    def __init__(self, spec=SPEC):
        self.broker, self.clock, self.facts = MemoryBroker(), SystemClock(), Facts()
        self.lane = Lane([spec], broker=self.broker, clock=self.clock, worker="w", facts=self.facts)
        self.broker.on_work(self.lane.knock)
        self.children = 0
        self.started = []  # payloads that a child began with

    async def submit(self, *payloads):
        now = self.clock.now()
        jobs = [Job(self.broker.new_id(now), "echo", payload, now, now) for payload in payloads]
        await self.broker.enqueue(jobs, now=now)
        return [job.id for job in jobs]

    async def rest(self):
        """Let everything that is on its way arrive."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def live(self):
        """One child: it is ready, takes what it gets, and dies of the first. Returns whether it got any."""
        self.children += 1
        child = Child()
        self.lane.child_ready(self.children, child)
        await self.rest()
        if not child.sent:
            self.lane.child_died(self.children, LOST, Traces(idle=True))
            await self.rest()
            return False
        tag, lease = child.sent[0]
        self.started.append(lease.job.payload)
        self.lane.child_died(self.children, LOST, Traces(tag))
        await self.rest()
        return True

    async def ends(self):
        """Return the code that each job ended with."""
        page = await self.broker.find(Query(limit=50), now=self.clock.now())
        return [one.standing.error and one.standing.error.code for one in reversed(page.records)]


def test_of_many_copies_no_more_than_it_takes_cost_a_worker_and_the_others_end_with_the_cause():
    async def run():
        rig = Rig()
        await rig.submit(*[b"deadly"] * 7)
        while await rig.live():
            pass
        assert rig.started == [b"deadly"] * 2
        assert sorted(await rig.ends()) == ["quarantined"] * 5 + ["worker_lost"] * 2
        assert rig.facts.told == [("echo", 2)], "told once"
        await rig.lane.close()

    asyncio.run(run())


def test_what_is_leased_ahead_is_held_out_too():
    async def run():
        rig = Rig()
        for _ in range(30):  # quick work: many are leased and sent at once
            rig.lane.dispatcher.hand.tasks["echo"].fit.observe(1, 1e-6)
        await rig.submit(*[b"deadly"] * 40, b"good")
        for _ in range(2):
            await rig.live()
        child = Child()
        rig.lane.child_ready(99, child)
        await rig.rest()
        ends = await rig.ends()
        assert ends.count("worker_lost") == 2 and ends.count("quarantined") == 38, ends
        assert [lease.job.payload for _, lease in child.sent] == [b"good"]
        await rig.lane.close()

    asyncio.run(run())


def test_other_inputs_run_and_a_job_from_after_the_last_death_gets_its_try():
    async def run():
        rig = Rig()
        await rig.submit(b"deadly", b"deadly")
        while await rig.live():
            pass
        await rig.submit(b"other")
        assert await rig.live() and rig.started[-1] == b"other"
        await rig.submit(b"deadly")  # as a forced redrive does: nothing else passes the door
        assert await rig.live() and rig.started[-1] == b"deadly"
        assert (await rig.ends()).count("quarantined") == 0
        await rig.lane.close()

    asyncio.run(run())


def test_requests_count_and_are_ended_with_the_cause():
    async def run():
        rig, ends = Rig(), []

        def ask(payload):
            now = rig.clock.now()
            job = Job(
                rig.broker.new_id(now), "echo", payload, now, now, attempts_max=2, deadline_at=now + 60.0
            )
            rig.lane.requests.offer(
                job, lambda ended: ends.append((payload, ended.error and ended.error.code))
            )

        for payload in (b"deadly", b"deadly", b"deadly", b"good"):
            ask(payload)
        await rig.rest()
        for _ in range(2):
            assert await rig.live()
        assert rig.started == [b"deadly"] * 2 and rig.facts.told == [("echo", 2)]
        assert ends == [(b"deadly", "worker_lost")] * 2 + [(b"deadly", "quarantined")]
        child = Child()
        rig.lane.child_ready(99, child)
        await rig.rest()
        assert [lease.job.payload for _, lease in child.sent] == [b"good"]
        await rig.lane.close()

    asyncio.run(run())


def test_a_task_that_spares_nobody_runs_every_copy():
    async def run():
        rig = Rig(TaskSpec(name="echo", settle=SettlePolicy(deaths_max=1, quarantine_deaths=0)))
        await rig.submit(*[b"deadly"] * 4)
        while await rig.live():
            pass
        assert await rig.ends() == ["worker_lost"] * 4
        await rig.lane.close()

    asyncio.run(run())


def test_what_waits_in_hand_is_ended_when_its_input_goes_into_quarantine():
    async def run():
        rig = Rig()
        now = rig.clock.now()
        await rig.submit(b"deadly", b"deadly", b"deadly", b"good")
        leases = await rig.broker.lease("echo", limit=4, lease_s=30, worker="w", now=now)
        hand = rig.lane.dispatcher.hand
        for lease in leases[2:]:
            hand.tasks["echo"].held.append(hand.take_in(lease, now))
        barring = Barring(rig.lane.dispatcher, rig.broker, rig.clock, {"echo": SPEC}, rig.facts)
        barring.look()
        assert not hand.transitions, "nothing is in quarantine"
        died = rig.clock.now()
        deaths = [
            settle.die(lease, error=LOST, policy=SPEC.settle, now=died, jitter=0.0) for lease in leases[:2]
        ]
        assert await rig.broker.commit(deaths, now=died) == [True, True]
        barring.look()
        assert [(step.job_id, step.error.code) for step in hand.transitions] == [
            (leases[2].job.id, "quarantined")
        ]
        assert [item.lease.job.payload for item in hand.tasks["echo"].held] == [b"good"]
        await rig.lane.close()

    asyncio.run(run())
