"""Outbox: the deliveries of an engine, the verbs of core.outbox.OutboxBook behind `async def`, and a bell."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from forebay.core.outbox import Delivery, DeliveryStep


class Outbox(Protocol):
    """What callbacks are owed. Meaning of each verb: core.outbox.OutboxBook. Several senders may share it."""

    async def claim(
        self, *, limit: int, each_max: int, rooms: Mapping[str, int], lease_s: float, now: float
    ) -> list[Delivery]:
        """Claim due deliveries, durably: earliest due first, of each endpoint what it has room for."""
        ...

    async def settle(self, steps: Sequence[DeliveryStep], *, now: float) -> list[bool]:
        """Store, durably, what became of tries whose claim is the newest; answer in order."""
        ...

    async def get(self, job_id: str, *, now: float) -> Delivery | None:
        """Return the delivery of a job, or None."""
        ...

    async def replay(self, job_id: str, *, now: float) -> Delivery | None:
        """Make a delivery due now, counting from anew, durably; None when there is none."""
        ...

    def due_at(self) -> float | None:
        """Return, without IO, an instant before which `claim` finds nothing; None when nothing is open."""
        ...

    def on_owed(self, bell: Callable[[], None]) -> Callable[[], None]:
        """Register a bell that rings, at best, when something new is owed; returns the way to remove it."""
        ...
