"""Crons: what an engine remembers of cron entries, the verbs of core.crons.CronBook behind `async def`."""

from collections.abc import Sequence
from typing import Protocol

from forebay.core.crons import CronMark
from forebay.core.job import Job, Receipt


class Crons(Protocol):
    """Marks of cron entries. Meaning of each verb: core.crons.CronBook. Several servers may share them."""

    async def marks(self) -> list[CronMark]:
        """Return what is known of every entry ever seen, by name."""
        ...

    async def fire(
        self, name: str, due_at: float, job: Job | None, *, when: str, skipped: str = "", now: float
    ) -> Receipt | None:
        """Store the job of a due instant, or that it has none, and move the mark, durably and in one step;
        None when the mark is there already."""
        ...

    async def forget(self, names: Sequence[str], *, now: float) -> int:
        """Remove the marks of entries, durably; return how many there were."""
        ...

    async def steer(self, name: str, *, paused: bool, now: float) -> CronMark:
        """Pause an entry or let it go on, durably, and return its mark."""
        ...
