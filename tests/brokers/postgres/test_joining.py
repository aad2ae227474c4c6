"""Who waits for work in the process that takes a job in gets it in the submit's own transaction."""

import asyncio

import pytest

from forebay.brokers.relay import MemoryHub, MemoryTransport, Relay
from tests.brokers.shared.sharing import WAIT_MAX_S, a_job, clock, shared

pytestmark = pytest.mark.engines


def test_a_lease_that_waits_for_work_joins_the_transaction_of_the_submit(server):
    async def body(broker):
        asked = []

        def rung(task):
            asked.append(broker.lease(task, limit=10, lease_s=30.0, worker="w", now=clock.now()))

        broker.on_work(rung)
        groups = broker._committer.groups
        job = a_job(broker)
        await broker.enqueue([job], now=clock.now())
        granted = await asked[0]
        assert [one.job.id for one in granted] == [job.id]
        assert broker._committer.groups == groups + 1
        assert len(asked) == 1, "work that was looked for is not rung for again"

    shared(server, "joined", body, count=1)


def test_work_that_nobody_here_looked_for_is_rung_for_when_it_is_stored(server):
    async def body(broker):
        rung = []
        broker.on_work(rung.append)
        await broker.enqueue([a_job(broker)], now=clock.now())
        assert rung == ["echo", "echo"], "as it comes, and as it is there"

    shared(server, "rung", body, count=1)


def test_a_job_for_later_rings_nobody(server):
    async def body(broker):
        rung = []
        broker.on_work(rung.append)
        await broker.enqueue([a_job(broker, run_at=clock.now() + 3600)], now=clock.now())
        assert rung == []

    shared(server, "later", body, count=1)


def test_behind_a_relay_it_joins_too_and_the_broker_gets_no_hint_of_the_job(server):
    hub = MemoryHub()

    async def body(store):
        relay = await Relay.open(store, MemoryTransport(hub), clock=clock)
        try:
            asked = []

            def rung(task):
                asked.append(relay.lease(task, limit=10, lease_s=30.0, worker="w", now=clock.now()))

            unhang = relay.on_work(rung)
            groups = store._committer.groups
            job = a_job(relay)
            await relay.enqueue([job], now=clock.now())
            assert [one.job.id for one in await asked[0]] == [job.id]
            assert store._committer.groups == groups + 1 and len(asked) == 1
            unhang()  # what nobody here waits for is announced
            other = a_job(relay)
            await relay.enqueue([other], now=clock.now())
            async with asyncio.timeout(WAIT_MAX_S):
                while not relay.told().events["sent"]:
                    await asyncio.sleep(0.01)
            assert relay.told().events["sent"] == hub.depth("echo") == 1
        finally:
            await relay.close()

    shared(server, "joined_relay", body, count=1)
