"""A relay with RabbitMQ before a store: the server dies, loses its queues, runs short of memory, is slow with what
is held too long; every accepted job ends once."""

import asyncio
import signal

import pytest

from forebay.brokers.rabbitmq import RabbitTransport
from forebay.brokers.relay import Relay
from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.relay.test_relay import Worker, clock, submit, until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]
PREFIX = "faults"


@pytest.fixture
def own():
    """A server that a test may end, and that is impatient with who holds a message."""
    one = RabbitServer(consumer_timeout="5000")
    try:
        yield one.start()
    finally:
        one.stop()


def relayed(server, rabbit, body, count=2, name="rabbited", prefix=PREFIX, on_down=lambda _: None):
    async def run():
        server.drop(name)
        relays = []
        try:
            for _ in range(count):
                store = await server.broker(name, clock)
                transport = await RabbitTransport.open(rabbit.url(prefix=prefix))
                relays.append(await Relay.open(store, transport, clock=clock, on_down=on_down))
            async with asyncio.timeout(200):
                await body(*relays)
        finally:
            for relay in relays:
                await relay.close()

    asyncio.run(run())


async def depth(relay):
    return await relay._link.depth("echo")


async def emptied(relay):
    ends_at = clock.now() + 60
    while await depth(relay):
        assert clock.now() < ends_at, relay.told()
        await asyncio.sleep(0.2)


@pytest.mark.parametrize("server", ["postgres", "redis"], indirect=True)
def test_jobs_end_once_and_no_message_stays(server, rabbit):
    async def body(api, node):
        worker = Worker(node)
        jobs = [job for _ in range(10) for job in await submit(api, 20)]
        await until(lambda: len(worker.done) >= len(jobs), node.told)
        assert sorted(worker.done) == sorted(jobs)
        await emptied(node)
        await worker.stop()

    relayed(server, rabbit, body)


@pytest.mark.parametrize("server", ["postgres"], indirect=True)
def test_a_server_that_is_killed_between_publish_and_confirm_costs_no_job(server, own):
    async def body(api, node):
        worker = Worker(node)
        jobs, began = await submit(api, 50), clock.now()
        # An old server leaves nobody who answers for a queue that was made in the very moment before: test_stuck.
        await until(lambda: clock.now() - began > 5.0, node.told)
        jobs += await submit(api, 200)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, own.halt, signal.SIGKILL)
        jobs += await submit(api, 50)  # no broker at all
        await until(lambda: len(worker.done) >= len(jobs), node.told)
        assert sorted(worker.done) == sorted(jobs), "all end, each once, without the broker"
        await loop.run_in_executor(None, own.start)
        await until(lambda: api.told().up and node.told().up, lambda: (api.told(), node.told()))
        jobs += await submit(api, 50)
        await until(lambda: len(worker.done) >= len(jobs), node.told)
        assert sorted(worker.done) == sorted(jobs)
        await emptied(node)
        await worker.stop()

    relayed(server, own, body)


@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_a_queue_that_was_deleted_is_made_and_filled_again(server, rabbit):
    async def body(api, node):
        await api.pause("echo", paused=True, now=clock.now())
        jobs = await submit(api, 20)
        await until(lambda: api.told().events["sent"] >= 20, api.told)
        transport = await RabbitTransport.open(rabbit.url(prefix=PREFIX))
        await transport.forget("echo")
        await transport.close()
        await node.lease("echo", limit=1, lease_s=30.0, worker="w", now=clock.now())
        await until(lambda: node.told().events["again"] >= 20, node.told)
        await node.pause("echo", paused=False, now=clock.now())
        worker = Worker(node)
        await until(lambda: sorted(worker.done) == sorted(jobs), node.told)
        await worker.stop()

    relayed(server, rabbit, body)


@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_f006_a_job_that_is_longer_than_the_consumer_timeout_is_not_delivered_again(server, own):
    async def body(api, node):
        await submit(api, 1)
        await until(lambda: api.told().events["sent"] == 1, api.told)
        (lease,) = await node.lease("echo", limit=1, lease_s=60.0, worker="w", now=clock.now())
        await node.lease("echo", limit=1, lease_s=60.0, worker="w", now=clock.now())
        await emptied(node)  # acknowledged as soon as it was leased
        began = clock.now()
        await until(lambda: clock.now() - began > 12.0, node.told)
        told = node.told()
        assert told.events["received"] <= 1 and told.events["outages"] == 0 and lease.attempt == 1

    relayed(server, own, body)


@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_a_server_that_is_short_of_memory_holds_up_no_submission(server, own):
    async def body(api, node):
        worker = Worker(node)
        await submit(api, 1)
        await until(lambda: len(worker.done) == 1, node.told)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, own.ctl, "set_vm_memory_high_watermark", "0.000001")
        try:
            began = clock.now()
            jobs = [job for _ in range(5) for job in await submit(api, 10)]
            assert clock.now() - began < 10.0, "a submission never waits for the broker"
            await until(lambda: len(worker.done) == 1 + len(jobs), node.told)
        finally:
            await loop.run_in_executor(None, own.ctl, "set_vm_memory_high_watermark", "0.8")
        await worker.stop()

    relayed(server, own, body)
