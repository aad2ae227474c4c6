"""Three servers, every stream on all of them: when the one that leads dies, another goes on with all hints."""

import asyncio

import pytest

from forebay.brokers.nats import NatsTransport
from forebay.conformance.hinting import bodies, seconds
from forebay.errors import DeliveryUnavailableError
from tests.brokers.nats.server import NatsCluster
from tests.brokers.nats.test_faults import consumer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(150)]
WAIT_MAX_S = 100.0
# What the dying one had handed to nobody comes again sooner than in half a minute.
QUICK = consumer("echo", ack_wait=2 * 10**9)


@pytest.fixture
def cluster():
    one = NatsCluster()
    try:
        yield one.start()
    finally:
        one.stop()


async def opened(url):
    """A cluster that has just begun may not place a stream yet."""
    while True:
        try:
            return await NatsTransport.open(url)
        except DeliveryUnavailableError:
            await asyncio.sleep(0.1)


def test_when_the_leader_dies_another_goes_on_with_all_that_was_acknowledged(cluster, record_property):
    async def run():
        one, two = await opened(cluster.url()), await opened(cluster.url())
        made = await asyncio.to_thread(first(cluster).api, "CONSUMER.DURABLE.CREATE.forebay.echo", QUICK)
        assert "error" not in made
        sent, got = set(), set()

        async def send():
            number = 0
            while True:
                batch = bodies(5, start=number)
                try:
                    await one.send("echo", batch)
                except DeliveryUnavailableError:
                    await asyncio.sleep(0.05)  # unknown: announced again
                    continue
                sent.update(batch)
                number += 5

        async def receive():
            while True:
                try:
                    hints = await two.receive("echo", limit=50, wait_s=1.0)
                    got.update(hint.body for hint in hints)
                    await two.ack("echo", hints)
                except DeliveryUnavailableError:
                    await asyncio.sleep(0.05)

        works = [asyncio.ensure_future(send()), asyncio.ensure_future(receive())]
        while len(got) < 100:
            await asyncio.sleep(0.01)
        leader = cluster.servers[(await asyncio.to_thread(info, cluster))["cluster"]["leader"]]
        await asyncio.to_thread(leader.halt)
        began, before = seconds(), (len(sent), len(got))
        while len(sent) < before[0] + 50 or len(got) < before[1] + 50:
            await asyncio.sleep(0.01)
        record_property("resumed_after_s", round(seconds() - began, 2))
        print(f"resumed after {seconds() - began:.2f} s")
        works[0].cancel()
        await asyncio.gather(works[0], return_exceptions=True)
        while not sent <= got:
            await asyncio.sleep(0.01)
        works[1].cancel()
        await asyncio.gather(works[1], return_exceptions=True)
        await one.close()
        await two.close()

    async def in_time():
        async with asyncio.timeout(WAIT_MAX_S):
            await run()

    asyncio.run(in_time())


def info(cluster):
    return first(cluster).api("STREAM.INFO.forebay")


def first(cluster):
    return next(iter(cluster.servers.values()))
