"""PubSubPlace: a project as the checks of transports get it."""

import itertools

from forebay.brokers.pubsub import PubSubTransport

_numbers = itertools.count()


class PubSubPlace:
    def __init__(self, server, url="pubsub://basin"):
        self.url, self.server = url, server
        self.opened = []

    async def open(self):
        transport = await PubSubTransport.open(self.url, self.server.address)
        self.opened.append(transport)
        return transport

    def task(self, name="echo"):
        return f"{name}-{next(_numbers)}"

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for transport in self.opened:
            await transport.close()
