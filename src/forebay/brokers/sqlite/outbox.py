"""SqliteOutbox: the embedded engine's deliveries behind ports.outbox.Outbox."""

from collections.abc import Callable, Mapping, Sequence

from forebay.brokers.sqlite.committer import Committer
from forebay.brokers.sqlite.store import SqlBook
from forebay.core.outbox import Delivery, DeliveryStep


class SqliteOutbox:
    """A ports.outbox.Outbox whose writes join the flushes of its engine."""

    def __init__(self, book: SqlBook, committer: Committer) -> None:
        self._book = book
        self._committer = committer

    async def claim(
        self, *, limit: int, each_max: int, rooms: Mapping[str, int], lease_s: float, now: float
    ) -> list[Delivery]:
        """Claim due deliveries, durably: earliest due first, of each endpoint what it has room for."""
        outbox = self._book.outbox
        claimed: list[Delivery] = await self._committer.later(
            lambda: outbox.claim(limit=limit, each_max=each_max, rooms=rooms, lease_s=lease_s, now=now)
        )
        return claimed

    async def settle(self, steps: Sequence[DeliveryStep], *, now: float) -> list[bool]:
        """Store, durably, what became of tries whose claim is the newest; answer in order."""
        verdicts: list[bool] = await self._committer.later(lambda: self._book.outbox.settle(steps, now=now))
        return verdicts

    async def get(self, job_id: str, *, now: float) -> Delivery | None:
        """Return the delivery of a job, or None."""
        return await self._committer.read(lambda book: book.outbox.get(job_id, now=now))

    async def replay(self, job_id: str, *, now: float) -> Delivery | None:
        """Make a delivery due now, counting from anew, durably; None when there is none."""
        row: Delivery | None = await self._committer.later(lambda: self._book.outbox.replay(job_id, now=now))
        return row

    def due_at(self) -> float | None:
        """Return, without IO, an instant before which `claim` finds nothing; None when nothing is open."""
        return self._book.outbox.due_at()

    def on_owed(self, bell: Callable[[], None]) -> Callable[[], None]:
        """Register a bell that rings when something new is owed; returns the way to remove it."""
        return self._committer.bells.on_owed(bell)
