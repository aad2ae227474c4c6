"""The engine under check: on one real server, each store in a schema of its own."""

import itertools
from dataclasses import dataclass, field

from forebay.brokers.postgres import PostgresBroker
from forebay.conformance.fixtures import RETENTION_S, T0

numbers = itertools.count()


class StandingClock:
    """A clock that moves only when told."""

    def __init__(self, at=T0):
        self.at = at

    def now(self):
        return self.at

    def random(self):
        return 0.5

    async def sleep(self, seconds):
        raise AssertionError("an engine under check must not sleep")


@dataclass
class Postgres:
    """`given_time`: honours `now`; else the database's clock counts, and it stands at T0."""

    server: object
    given_time: bool
    fresh: bool = False  # a schema of its own for each store; else one schema is emptied
    urls: dict = field(default_factory=dict)
    opened: list = field(default_factory=list)

    async def open(self, url=None, now=T0):
        if url is None:
            url = self.server.url(f"check_{next(numbers)}" if self.fresh else "checked")
            if not self.fresh:
                self.server.empty("checked")
        broker = await PostgresBroker.open(
            url,
            clock=StandingClock(now),
            retention_s=RETENTION_S,
            given_time=self.given_time,
            clock_sql=f"SELECT {T0}::float8",
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
