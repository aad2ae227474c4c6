"""The engine under check: on one real server, each store under a name of its own."""

from dataclasses import dataclass, field

from forebay.brokers.redis import RedisBroker
from forebay.conformance.fixtures import RETENTION_S, T0
from tests.brokers.postgres.engines import StandingClock


@dataclass
class Redis:
    """`given_time`: honours `now`; else the server's clock counts, and it stands at T0."""

    server: object
    given_time: bool
    urls: dict = field(default_factory=dict)
    opened: list = field(default_factory=list)

    async def open(self, url=None, now=T0):
        if url is None:
            url = self.server.url("checked")
            self.server.empty("checked")
        broker = await RedisBroker.open(
            url,
            clock=StandingClock(now),
            retention_s=RETENTION_S,
            given_time=self.given_time,
            stands_at=None if self.given_time else T0,
        )
        self.urls[id(broker)] = url
        self.opened.append(broker)
        return broker

    async def close(self):
        """Close what a check has left open."""
        for broker in self.opened:
            await broker.close()

    async def reopen(self, broker, *, crash, now):
        url = self.urls[id(broker)]
        if crash:
            await broker.abandon()
        else:
            await broker.close()
        return await self.open(url, now)
