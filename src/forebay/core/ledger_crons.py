"""LedgerCrons: the reference marks of cron entries that every engine must equal."""

from collections.abc import Callable, Sequence

from forebay.core.crons import CronMark, is_dealt_with, moved, steered
from forebay.core.job import Job, Receipt


class LedgerCrons:
    """A core.crons.CronBook in memory, beside the Ledger's jobs."""

    def __init__(self, *, tick: Callable[[float], float], store: Callable[[Job, float], Receipt]) -> None:
        self._tick = tick
        self._store = store
        self._marks: dict[str, CronMark] = {}

    def marks(self) -> list[CronMark]:
        """Return what is known of every entry ever seen, by name."""
        return sorted(self._marks.values())

    def fire(
        self, name: str, due_at: float, job: Job | None, *, when: str, skipped: str = "", now: float
    ) -> Receipt | None:
        """Store the job of a due instant, or that there is none, and move the mark; None when it is there."""
        now = self._tick(now)
        mark = self._marks.get(name)
        if is_dealt_with(mark, due_at, job, when=when, skipped=skipped):
            return None
        receipt = None if job is None else self._store(job, now)
        self._marks[name] = moved(mark, name, due_at, receipt, when=when, skipped=skipped)
        return receipt

    def forget(self, names: Sequence[str], *, now: float) -> int:
        """Remove the marks of entries; return how many there were."""
        self._tick(now)
        return sum(self._marks.pop(name, None) is not None for name in names)

    def steer(self, name: str, *, paused: bool, now: float) -> CronMark:
        """Pause an entry or let it go on from `now`, and return its mark."""
        now = self._tick(now)
        mark = steered(self._marks.get(name) or CronMark(name, "", now), paused, now)
        self._marks[name] = mark
        return mark
