"""What a producer asks before it sends, in both clients: announce a burst, wait for headroom."""

from forebay.client import arguments, plans, wire
from forebay.client.drive import Runs, RunsLater
from forebay.client.plans import Plan, Terms
from forebay.client.records import Announcement, announcement_of

HEADROOM_TIMEOUT = "5m"


class LooksAhead:
    """The verbs of the client that blocks."""

    def announce(self: Runs, task: str, jobs: int, *, size: int | str | None = None) -> Announcement:
        """Tell the server that so many jobs are about to come, of so many bytes each ("2KB"). Returns whether
        they fit at once, the rate to keep where they do not, and when the last should end. Reserves nothing.
        """
        return self.run(_announced(task, jobs, size, self.terms))

    def wait_headroom(self: Runs, task: str, jobs: int, *, timeout: str | float = HEADROOM_TIMEOUT) -> bool:
        """Wait until the queue of a task has room for so many jobs, and return True; False when it has none
        after `timeout`. Others may be faster: what is submitted then may still be refused."""
        return self.run(plans.headroom(task, jobs, arguments.seconds("timeout", timeout), self.terms))


class AsyncLooksAhead:
    """The verbs of the client that awaits."""

    async def announce(
        self: RunsLater, task: str, jobs: int, *, size: int | str | None = None
    ) -> Announcement:
        """Tell the server of a burst; see `Client.announce`."""
        return await self.run(_announced(task, jobs, size, self.terms))

    async def wait_headroom(
        self: RunsLater, task: str, jobs: int, *, timeout: str | float = HEADROOM_TIMEOUT
    ) -> bool:
        """Wait until a queue has room; see `Client.wait_headroom`."""
        return await self.run(plans.headroom(task, jobs, arguments.seconds("timeout", timeout), self.terms))


def _announced(task: str, jobs: int, size: int | str | None, terms: Terms) -> Plan[Announcement]:
    return announcement_of((yield from plans.ask(wire.announce_call(task, jobs, size), terms)))
