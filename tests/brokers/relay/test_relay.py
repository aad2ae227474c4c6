"""A relay whose broker loses, doubles, delays, mixes up, forges or goes away: every job ends once all the same."""

import asyncio
import random

import pytest

from forebay.brokers.relay import MemoryHub, MemoryTransport, Relay
from forebay.brokers.relay.memory import Faults
from forebay.clock import SystemClock
from forebay.core import settle
from forebay.core.job import Job, JobError
from forebay.core.lifecycle import State
from forebay.core.settle import SettlePolicy

pytestmark = [pytest.mark.engines, pytest.mark.timeout(120)]
WAIT_MAX_S = 60.0
clock = SystemClock()


class Worker:
    """Leases when its bell rings, and each second as a node does; ends what it got, after `run_s`."""

    def __init__(self, relay, limit=4, looks=True, run_s=0.0):
        self.relay = relay
        self.run_s = run_s
        self.limit = limit
        self.looks = looks
        self.done = []
        self.begun = []
        self.rung = asyncio.Event()
        relay.on_work(lambda task: self.rung.set() if task == "echo" else None)
        self.loop = asyncio.ensure_future(self.run())

    async def run(self):
        while True:
            now = clock.now()
            self.rung.clear()
            leases = await self.relay.lease("echo", limit=self.limit, lease_s=30.0, worker="w", now=now)
            self.begun += [one.job.id for one in leases]
            if leases and self.run_s:
                await asyncio.sleep(self.run_s)
            steps = [settle.complete(one, output=b"1", now=now) for one in leases]
            if steps:
                kept = await self.relay.commit(steps, now=now)
                self.done += [one.job.id for one, stored in zip(leases, kept) if stored]
            if len(leases) < self.limit:
                try:
                    async with asyncio.timeout(1.0 if self.looks else None):
                        await self.rung.wait()
                except TimeoutError:
                    continue

    async def stop(self):
        self.loop.cancel()
        await asyncio.gather(self.loop, return_exceptions=True)


def a_job(relay, **fields):
    now = clock.now()
    made = {"id": relay.new_id(now), "task": "echo", "payload": b"1", "created_at": now, "run_at": now}
    return Job(**{**made, **fields})


async def submit(relay, count):
    jobs = [a_job(relay) for _ in range(count)]
    await relay.enqueue(jobs, now=clock.now())
    return [job.id for job in jobs]


async def until(condition, what):
    ends_at = clock.now() + WAIT_MAX_S
    while not condition():
        assert clock.now() < ends_at, f"not in {WAIT_MAX_S} s: {what()}"
        await asyncio.sleep(0.02)


def relayed(server, hub, body, count=2, name="relayed"):
    """Run `body` with so many relays, each a process as it were, on one store and one hub."""

    async def run():
        server.drop(name)
        downs, relays = [], []
        try:
            for _ in range(count):
                store = await server.broker(name, clock)
                relays.append(
                    await Relay.open(store, MemoryTransport(hub), clock=clock, on_down=downs.append)
                )
            async with asyncio.timeout(WAIT_MAX_S + 20):
                await body(*relays)
        finally:
            for relay in relays:
                await relay.close()

    asyncio.run(run())


def test_a_job_taken_by_one_process_rings_in_another_through_the_broker(server):
    hub = MemoryHub()

    async def body(api, node):
        worker = Worker(node, looks=False)  # the bell alone
        node._receiver("echo").line._hungry_at = float("inf")  # it stands for the look of each second
        (job,) = await submit(api, 1)
        await until(lambda: worker.done == [job], lambda: hub.queues)
        await until(lambda: hub.depth("echo") == 0, lambda: hub.queues)
        told = node.told()
        assert told.up and told.events["received"] == told.events["acknowledged"] == 1
        await worker.stop()

    relayed(server, hub, body)


@pytest.mark.parametrize(
    "fault",
    [
        {"lost": 0.5},
        {"doubled": 0.5},
        {"late": 0.5},
        {"mixed": True},
        {"lost": 1.0},
        {"away": True},
        {"blocked": True},
    ],
    ids=lambda fault: "-".join(f"{name}-{share}" for name, share in fault.items()),
)
def test_every_job_ends_once_whatever_the_broker_does(server, fault):
    hub = MemoryHub(Faults(draw=random.Random(7).random, **fault))

    async def body(api, one, two):
        workers = [Worker(one), Worker(two)]
        jobs = [job for _ in range(10) for job in await submit(api, 30)]
        done = lambda: [*workers[0].done, *workers[1].done]
        await until(lambda: len(done()) >= len(jobs), lambda: f"{len(done())} of {len(jobs)}")
        assert sorted(done()) == sorted(jobs)
        hub.faults = Faults()
        await until(lambda: hub.depth("echo") == 0, lambda: (hub.depth("echo"), one.told(), two.told()))
        for worker in workers:
            await worker.stop()

    relayed(server, hub, body, 3)


def test_a_forged_hint_is_thrown_away_and_rings_nobody(server):
    hub = MemoryHub()

    async def body(node):
        rung = []
        node.on_work(rung.append)
        await node.lease("echo", limit=1, lease_s=30.0, worker="w", now=clock.now())
        for body in (b"", b"{}", b'{"forebay":1,"task":"echo","job":"a","mac":"00"}', b"\xff" * 999):
            hub.arrive("echo", body)
        await until(lambda: node.told().events["forged"] == 4, node.told)
        await until(lambda: hub.depth("echo") == 0, node.told)
        assert not rung

    relayed(server, hub, body, 1)


def test_a_hint_whose_job_is_gone_is_acknowledged_and_one_whose_task_is_paused_comes_again(server):
    hub = MemoryHub()

    async def body(api, node):
        await node.pause("echo", paused=True, now=clock.now())
        gone, stays = await submit(api, 2)
        await until(lambda: hub.depth("echo") == 2, lambda: hub.queues)
        await api.cancel([gone], now=clock.now())
        worker = Worker(node)
        await until(lambda: node.told().events["stale"] == 1, node.told)
        await until(lambda: node.told().events["given_back"] >= 2, node.told)
        assert hub.depth("echo") == 1 and not worker.done
        await node.pause("echo", paused=False, now=clock.now())
        await until(lambda: worker.done == [stays], node.told)
        await worker.stop()

    relayed(server, hub, body)


def test_a_broker_that_lost_everything_gets_a_hint_of_each_queued_job_again(server):
    hub = MemoryHub()

    async def body(api, node):
        await api.pause("echo", paused=True, now=clock.now())
        await submit(api, 40)
        await until(lambda: hub.depth("echo") == 40, lambda: hub.queues)
        hub.lose_all()
        await node.lease("echo", limit=1, lease_s=30.0, worker="w", now=clock.now())
        await until(lambda: hub.depth("echo") == 40, node.told)
        assert node.told().events["again"] == 40

    relayed(server, hub, body)


def test_a_dead_job_is_told_to_the_queue_of_dead_letters(server):
    hub = MemoryHub()

    async def body(relay):
        (job,) = await submit(relay, 1)
        (lease,) = await relay.lease("echo", limit=1, lease_s=30.0, worker="w", now=clock.now())
        told, policy = JobError("failed", "no", "", 1), SettlePolicy()
        step = settle.fail(lease, error=told, policy=policy, now=clock.now(), jitter=0.0, permanent=True)
        assert step.state is State.DEAD
        await relay.commit([step], now=clock.now())
        await until(lambda: len(hub.dead.get("echo", ())) == 1, relay.told)
        assert job.encode() in hub.dead["echo"][0]

    relayed(server, hub, body, 1)
