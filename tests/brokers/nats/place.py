"""Place: a prefix on a real server, as the checks of transports get it."""

import itertools
import os

from forebay.brokers.nats import NatsTransport

_numbers = itertools.count()


class Place:
    """Opens transports on one server; `close` removes what they made there."""

    def __init__(self, server, **more):
        self.server, self.more = server, more
        self.prefix = f"t{os.getpid()}-{next(_numbers)}"
        self.opened = []

    async def open(self):
        transport = await NatsTransport.open(self.server.url(self.prefix, **self.more))
        self.opened.append(transport)
        return transport

    def task(self, name="echo"):
        return f"{name}.{next(_numbers)}"

    async def close(self):
        for transport in self.opened:
            await transport.close()
        last = await NatsTransport.open(self.server.url(self.prefix))
        await last.remove()
        await last.close()
