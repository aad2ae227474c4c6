"""Looks, AsyncLooks: what both clients can ask of a server as a whole."""

from forebay.client import plans
from forebay.client.drive import Runs, RunsLater
from forebay.client.wire import View

Views = list[View]


class Looks:
    """The part of a Client that looks at a whole server."""

    def tasks(self: Runs) -> Views:
        """Return every task with its schemas, limits and measured times."""
        return self.run(plans.whole("/v1/tasks", self.terms))

    def workers(self: Runs) -> Views:
        """Return every replica with its state."""
        return self.run(plans.whole("/v1/workers", self.terms))

    def nodes(self: Runs) -> Views:
        """Return every node, the one first whose end would cost least."""
        return self.run(plans.whole("/v1/nodes", self.terms))

    def queues(self: Runs) -> Views:
        """Return every queue with its depth and rates."""
        return self.run(plans.whole("/v1/queues", self.terms))

    def streams(self: Runs) -> Views:
        """Return every stream of frames with its accounts."""
        return self.run(plans.whole("/v1/streams", self.terms))

    def alerts(self: Runs) -> Views:
        """Return the alerts that fire now, the critical ones first."""
        return self.run(plans.whole("/v1/alerts", self.terms))


class AsyncLooks:
    """The part of an AsyncClient that looks at a whole server."""

    async def tasks(self: RunsLater) -> Views:
        """Return every task with its schemas, limits and measured times."""
        return await self.run(plans.whole("/v1/tasks", self.terms))

    async def workers(self: RunsLater) -> Views:
        """Return every replica with its state."""
        return await self.run(plans.whole("/v1/workers", self.terms))

    async def nodes(self: RunsLater) -> Views:
        """Return every node, the one first whose end would cost least."""
        return await self.run(plans.whole("/v1/nodes", self.terms))

    async def queues(self: RunsLater) -> Views:
        """Return every queue with its depth and rates."""
        return await self.run(plans.whole("/v1/queues", self.terms))

    async def streams(self: RunsLater) -> Views:
        """Return every stream of frames with its accounts."""
        return await self.run(plans.whole("/v1/streams", self.terms))

    async def alerts(self: RunsLater) -> Views:
        """Return the alerts that fire now, the critical ones first."""
        return await self.run(plans.whole("/v1/alerts", self.terms))
