"""KafkaPlace: a cluster as the checks of transports get it."""

import itertools

from forebay.brokers.kafka import KafkaTransport
from forebay.brokers.kafka.address import Address

_numbers = itertools.count()


class KafkaPlace:
    def __init__(self, url, **settings):
        self.url = url
        # Tansu 0.6 counts a batch as one message when it is asked for the end of a partition.
        self.settings = {"batch.num.messages": "1", **settings}
        self.opened = []

    async def open(self):
        address = Address.of(self.url)
        transport = KafkaTransport(address._replace(settings={**address.settings, **self.settings}))
        self.opened.append(transport)
        return transport

    def task(self, name="echo"):
        return f"{name}-{next(_numbers)}"

    async def close(self):
        for transport in self.opened:
            await transport.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()
