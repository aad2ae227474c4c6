"""SqliteCrons: the embedded engine's marks of cron entries behind ports.crons.Crons."""

from collections.abc import Sequence

from forebay.brokers.sqlite.committer import Committer
from forebay.brokers.sqlite.marks import SqlCrons
from forebay.brokers.sqlite.place import Place
from forebay.core.crons import CronMark
from forebay.core.job import Job, Receipt


class SqliteCrons:
    """A ports.crons.Crons whose writes join the flushes of its engine."""

    def __init__(self, book: SqlCrons, committer: Committer, place: Place) -> None:
        self._book = book
        self._committer = committer
        self._place = place

    async def marks(self) -> list[CronMark]:
        """Return what is known of every entry ever seen, by name."""
        return await self._committer.read(lambda book: book.crons.marks())

    async def fire(
        self, name: str, due_at: float, job: Job | None, *, when: str, skipped: str = "", now: float
    ) -> Receipt | None:
        """Store the job of a due instant and move the mark, durably and in one step."""
        gone = self._place.problem()
        if gone is not None:
            raise gone
        receipt: Receipt | None = await self._committer.later(
            lambda: self._book.fire(name, due_at, job, when=when, skipped=skipped, now=now)
        )
        return receipt

    async def forget(self, names: Sequence[str], *, now: float) -> int:
        """Remove the marks of entries, durably; return how many there were."""
        gone: int = await self._committer.later(lambda: self._book.forget(names, now=now))
        return gone

    async def steer(self, name: str, *, paused: bool, now: float) -> CronMark:
        """Pause an entry or let it go on, durably, and return its mark."""
        mark: CronMark = await self._committer.later(lambda: self._book.steer(name, paused=paused, now=now))
        return mark
