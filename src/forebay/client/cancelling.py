"""cancel_many of both clients: many jobs cancelled at once."""

from collections.abc import Iterable, Mapping
from typing import TypedDict, Unpack

from forebay.client import arguments, plans
from forebay.client.drive import Runs, RunsLater
from forebay.client.plans import Plan, Terms


class CancelFilters(TypedDict, total=False):
    """Which open jobs: those that every filter matches; `everything` where no filter is given."""

    status: str | None
    task: str | None
    metadata: Mapping[str, str] | None
    everything: bool


class CancelsMany:
    """The verb of the client that blocks."""

    def cancel_many(
        self: Runs, ids: Iterable[str] | None = None, **filters: Unpack[CancelFilters]
    ) -> dict[str, int]:
        """Cancel the named jobs, or all open ones that every filter (`status`, `task`, `metadata`) matches,
        or, with `everything`, all. Returns how many were `cancelled`, `requested` (they run and end a little
        later), `already` cancelled, `final` otherwise, and `unknown`."""
        return self.run(_cancelled(ids, filters, self.terms))


class AsyncCancelsMany:
    """The verb of the client that awaits."""

    async def cancel_many(
        self: RunsLater, ids: Iterable[str] | None = None, **filters: Unpack[CancelFilters]
    ) -> dict[str, int]:
        """Cancel many jobs at once; see `Client.cancel_many`."""
        return await self.run(_cancelled(ids, filters, self.terms))


def _cancelled(ids: Iterable[str] | None, filters: CancelFilters, terms: Terms) -> Plan[dict[str, int]]:
    return (yield from plans.cancelled(arguments.cancelling(ids, **filters), terms))
