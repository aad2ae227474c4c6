"""Crons, AsyncCrons: what both clients can do about cron entries."""

from forebay.client import plans, wire
from forebay.client.drive import Runs, RunsLater
from forebay.client.wire import View

Views = list[View]


class Crons:
    """The part of a Client that is about cron entries."""

    def crons(self: Runs) -> Views:
        """Return every cron entry: when it runs next, when it ran last, its last job."""
        return self.run(plans.whole("/v1/crons", self.terms))

    def pause_cron(self: Runs, cron: str) -> View:
        """Submit nothing of a cron entry until it is resumed. Returns the entry."""
        return self.run(plans.ask(wire.cron_call(cron, "pause"), self.terms))

    def resume_cron(self: Runs, cron: str) -> View:
        """Let a cron entry go on from now; what was due meanwhile is not made up for. Returns the entry."""
        return self.run(plans.ask(wire.cron_call(cron, "resume"), self.terms))


class AsyncCrons:
    """The part of an AsyncClient that is about cron entries."""

    async def crons(self: RunsLater) -> Views:
        """Return every cron entry: when it runs next, when it ran last, its last job."""
        return await self.run(plans.whole("/v1/crons", self.terms))

    async def pause_cron(self: RunsLater, cron: str) -> View:
        """Submit nothing of a cron entry until it is resumed. Returns the entry."""
        return await self.run(plans.ask(wire.cron_call(cron, "pause"), self.terms))

    async def resume_cron(self: RunsLater, cron: str) -> View:
        """Let a cron entry go on from now; what was due meanwhile is not made up for. Returns the entry."""
        return await self.run(plans.ask(wire.cron_call(cron, "resume"), self.terms))
