"""RabbitMQ keeps the contract of a transport, on a real server."""

import asyncio
import itertools

import pytest

from forebay.brokers.rabbitmq import RabbitTransport
from forebay.conformance.transports import TRANSPORT_CHECKS

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]
_numbers = itertools.count()


class Place:
    def __init__(self, server):
        self.server = server
        self.name = f"place{next(_numbers)}"
        self.tasks = set()

    async def open(self):
        return await RabbitTransport.open(self.server.url())

    def task(self, name="echo"):
        self.tasks.add(f"{self.name}-{name}")
        return f"{self.name}-{name}"

    async def clear(self):
        transport = await self.open()
        for task in self.tasks:
            await transport.forget(task)
        await transport.close()


@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
def test_the_contract_of_a_transport_holds(rabbit, check):
    place = Place(rabbit)

    async def run():
        try:
            await check(place)
        finally:
            await place.clear()

    asyncio.run(run())
