"""A NATS server that restarts again and again, a store that is away while it delivers, answers at odd moments."""

import asyncio
import contextlib

import pytest

from forebay.brokers.nats import NatsTransport, link
from forebay.brokers.relay import Relay
from forebay.conformance.hinting import bodies, received, same
from forebay.errors import DeliveryUnavailableError, StoreUnavailableError
from tests.brokers.nats.test_faults import in_time
from tests.brokers.redis.server import RedisServer
from tests.brokers.relay.test_relay import Worker, a_job, clock, submit, until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]
RESTARTS = 5


@pytest.fixture
def mortal():
    """A store that a test may end."""
    one = RedisServer()
    try:
        yield one.start()
    finally:
        one.stop()


def relayed(store, server, body):
    """Run `body` with two relays, each a process as it were."""

    async def run():
        relays = []
        try:
            for _ in range(2):
                transport = await NatsTransport.open(server.url())
                relays.append(await Relay.open(await store.broker("lasting", clock), transport, clock=clock))
            async with asyncio.timeout(120):
                await body(*relays)
        finally:
            for relay in relays:
                await relay.close()

    asyncio.run(run())


async def emptied(relay):
    ends_at = clock.now() + 60
    while await in_time(lambda: relay._link.depth("echo")):
        assert clock.now() < ends_at, relay.told()
        await asyncio.sleep(0.1)


def test_f022_a_server_that_restarts_again_and_again_costs_no_job_and_delivers_afterwards(mortal, own):
    async def body(api, node):
        worker, jobs = Worker(node), []
        for _ in range(RESTARTS):
            jobs += await submit(api, 10)
            await asyncio.to_thread(own.halt, own.ENDS["crash"])
            jobs += await submit(api, 10)
            await asyncio.to_thread(own.start)
            jobs += await submit(api, 10)
        await until(lambda: len(worker.done) >= len(jobs), lambda: (len(worker.done), node.told()))
        await until(lambda: api.told().up and node.told().up, lambda: (api.told(), node.told()))
        before = node.told().events["received"]
        while node.told().events["received"] == before:
            jobs += await submit(api, 1)
            await asyncio.sleep(0.2)
        await until(lambda: len(worker.done) >= len(jobs), lambda: (len(worker.done), node.told()))
        assert sorted(worker.begun) == sorted(worker.done) == sorted(jobs), "each once"
        await emptied(node)
        await worker.stop()

    relayed(mortal, own, body)


def test_f029_a_delayed_job_runs_at_its_time_though_the_server_restarts_meanwhile(mortal, own):
    async def body(api, node):
        worker, run_at = Worker(node), clock.now() + 3.0
        job = a_job(api, run_at=run_at)
        await api.enqueue([job], now=clock.now())
        await asyncio.to_thread(own.halt, own.ENDS["crash"])
        await asyncio.to_thread(own.start)

        async def swept():
            while True:  # as a server does
                await api.sweep(limit=100, now=clock.now())
                await asyncio.sleep(0.2)

        sweeping = asyncio.ensure_future(swept())
        await until(lambda: worker.done, node.told)
        assert worker.done == [job.id] and 0.0 <= clock.now() - run_at < 3.0
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        await worker.stop()

    relayed(mortal, own, body)


class Patient(Worker):
    """One that goes on when the store was away."""

    refused = 0

    async def run(self):
        while True:
            try:
                await super().run()
            except StoreUnavailableError:
                self.refused += 1
            await asyncio.sleep(0.05)


def test_a_store_that_is_away_while_the_broker_delivers_loses_no_hint_and_runs_nothing_twice(mortal, own):
    async def body(api, node):
        await node.pause("echo", paused=True, now=clock.now())
        worker = Patient(node)
        jobs = await submit(api, 20)
        await until(lambda: node.told().events["received"], node.told)
        await asyncio.to_thread(mortal.halt, mortal.ENDS["crash"])
        await until(lambda: worker.refused > 5, node.told)
        await asyncio.to_thread(mortal.start)
        while True:
            with contextlib.suppress(StoreUnavailableError):
                await api.pause("echo", paused=False, now=clock.now())
                break
            await asyncio.sleep(0.05)
        await until(lambda: len(worker.done) >= len(jobs), lambda: (len(worker.done), node.told()))
        assert sorted(worker.begun) == sorted(worker.done) == sorted(jobs), "each once"
        await emptied(node)
        await until(lambda: not node.told().held, node.told)
        await worker.stop()

    relayed(mortal, own, body)


def test_an_answer_that_comes_before_the_question_was_wholly_put_is_heard(own, monkeypatch):
    monkeypatch.setattr(link, "ANSWER_WAITS_S", (30.0,))

    async def body():
        one = await NatsTransport.open(own.url())
        client = one._link._client
        publish = client.publish

        async def published(*args, **more):
            await publish(*args, **more)
            await client.flush()  # the answer is here before this returns

        client.publish = published
        async with asyncio.timeout(20.0):
            await one.send("echo", bodies(3))
            same(await received(one, "echo", 3), bodies(3), "what was sent")
        client.publish = publish
        await one.close()

    asyncio.run(body())


def test_a_peer_that_takes_nothing_more_is_left_in_time(own, monkeypatch):
    monkeypatch.setattr(link, "ALIVE_MAX_S", 0.2)
    monkeypatch.setattr(link, "LET_GO_MAX_S", 0.2)

    async def body():
        one = await NatsTransport.open(own.url())
        there = one._link
        client, taking = there._client, asyncio.Event()

        async def stuck(*_, **__):
            await taking.wait()

        client._flush_pending = stuck  # its queue of what is to be written is full
        async with asyncio.timeout(10.0):
            with pytest.raises(DeliveryUnavailableError):
                await there.prove_alive()
        assert there.lost.is_set() and client._transport._io_writer.transport.is_closing()
        taking.set()
        await one.close()

    asyncio.run(body())


def test_who_is_cancelled_while_a_connection_is_left_leaves_none_open(own):
    async def body():
        one = await NatsTransport.open(own.url())
        there, closing = one._link, asyncio.Event()
        raw = there._client._transport._io_writer.transport

        async def close():
            closing.set()
            await asyncio.Event().wait()

        there._client.close = close
        dropping = asyncio.ensure_future(there.drop("over"))
        await closing.wait()
        dropping.cancel()
        await asyncio.gather(dropping, return_exceptions=True)
        assert raw.is_closing()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    asyncio.run(body())
