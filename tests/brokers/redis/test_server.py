"""What only a Redis does: it is full, forgets the scripts, is a node of a cluster."""

import asyncio

import pytest

from forebay.brokers.redis import RedisBroker
from forebay.brokers.redis import store as store_module
from forebay.clock import SystemClock
from forebay.core import settle
from forebay.core.lifecycle import State
from forebay.errors import StoreFullError
from tests.brokers.redis.server import RedisServer
from tests.brokers.shared.faults import WAIT_MAX_S, a_job, everything, run_all
from tests.ports import free_port
from tests.waiting import until

pytestmark = pytest.mark.engines


@pytest.fixture
def own():
    """A server that a test may change."""
    one = RedisServer()
    try:
        yield one.start()
    finally:
        one.stop()


def test_a_full_memory_refuses_what_is_new_and_lets_what_runs_end(own):
    clock = SystemClock()

    async def run():
        broker = await RedisBroker.open(own.url(), clock=clock)
        try:
            await broker.enqueue([a_job(broker, clock) for _ in range(5)], now=clock.now())
            leases = await broker.lease("echo", limit=3, lease_s=60.0, worker="w", now=clock.now())
            await asyncio.to_thread(own.ask, "CONFIG", "SET", "maxmemory", "1")
            with pytest.raises(StoreFullError):
                await broker.enqueue([a_job(broker, clock)], now=clock.now())
            done = [settle.complete(lease, output=b"1", now=clock.now()) for lease in leases]
            assert await broker.commit(done, now=clock.now()) == [True] * 3
            more = await broker.lease("echo", limit=3, lease_s=60.0, worker="w", now=clock.now())
            assert len(more) == 2
            assert await broker.purge([lease.job.id for lease in leases], limit=3, now=clock.now()) == 3
            await asyncio.to_thread(own.ask, "CONFIG", "SET", "maxmemory", "0")
            await broker.enqueue([a_job(broker, clock)], now=clock.now())
        finally:
            await broker.close()

    asyncio.run(run())


def test_a_full_memory_that_refuses_a_submission_grants_the_lease_that_came_with_it(own):
    clock = SystemClock()

    async def run():
        broker = await RedisBroker.open(own.url(), clock=clock)
        try:
            waiting = [a_job(broker, clock) for _ in range(2)]
            await broker.enqueue(waiting, now=clock.now())
            await asyncio.to_thread(own.ask, "CONFIG", "SET", "maxmemory", "1")
            asked = []
            broker.on_work(
                lambda task: asked.append(
                    broker.lease(task, limit=5, lease_s=60.0, worker="w", now=clock.now())
                )
            )
            with pytest.raises(StoreFullError):
                await broker.enqueue([a_job(broker, clock)], now=clock.now())
            assert [lease.job for lease in await asked[0]] == waiting
        finally:
            await broker.close()

    asyncio.run(run())


def test_each_connection_that_answered_a_moment_ago_is_taken_as_it_is(own, monkeypatch):
    clock = SystemClock()
    asked, ask = [], store_module.ask

    async def noting(connection, *command):
        asked.append(command[0])
        return await ask(connection, *command)

    async def run():
        broker = await RedisBroker.open(own.url(), clock=clock)
        try:
            await broker._upkeep.close()
            await broker._wire.close()
            await broker._connections.forget_free()  # what it told others with
            held = await broker._connections.take()  # by whoever tells others, say
            await broker.enqueue([a_job(broker, clock)], now=clock.now())
            other = await broker._connections.take()
            await broker._connections.give(held, whole=True)
            await broker.enqueue([a_job(broker, clock)], now=clock.now())
            await broker._connections.give(other, whole=True)
            monkeypatch.setattr(store_module, "ask", noting)
            monkeypatch.setattr(store_module, "ALIVE_S", 3600.0)
            await broker.enqueue([a_job(broker, clock)], now=clock.now())
            held = await broker._connections.take()
            await broker.enqueue([a_job(broker, clock)], now=clock.now())
            await broker._connections.give(held, whole=True)
            assert asked == ["EVALSHA"] * 2
        finally:
            await broker.close()
        assert not broker._connections.answered_at

    asyncio.run(run())


def test_a_server_that_forgot_the_scripts_is_told_them_again(own):
    clock = SystemClock()

    async def run():
        broker = await RedisBroker.open(own.url(), clock=clock)
        try:
            job = a_job(broker, clock)
            await broker.enqueue([job], now=clock.now())
            await asyncio.to_thread(own.ask, "SCRIPT", "FLUSH")
            await broker.enqueue([a_job(broker, clock)], now=clock.now())
            assert (await broker.get(job.id, now=clock.now())).job == job
        finally:
            await broker.close()

    asyncio.run(run())


def test_a_node_of_a_cluster_that_has_the_slot_keeps_a_store():
    one, clock = RedisServer(), SystemClock()

    async def run():
        broker = await RedisBroker.open(one.url(), clock=clock)
        try:
            await broker.enqueue([a_job(broker, clock, ordering_key="k") for _ in range(3)], now=clock.now())
            await run_all(broker, clock)
            records = await everything(broker, clock)
            assert [record.standing.state for record in records] == [State.SUCCEEDED] * 3
            async with one.ear("forebay") as said:  # others may hear at another node of it
                await broker.enqueue([a_job(broker, clock)], now=clock.now())
                async with asyncio.timeout(WAIT_MAX_S):
                    while not await said():
                        await asyncio.sleep(0.01)
        finally:
            await broker.close()

    try:
        one.start(**{"cluster-enabled": "yes", "cluster-port": free_port()})
        one.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        until(lambda: b"cluster_state:ok" in one.ask("CLUSTER", "INFO"), WAIT_MAX_S, "the cluster is whole")
        asyncio.run(run())
    finally:
        one.stop()
