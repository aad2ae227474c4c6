"""SqlCrons: the marks of cron entries, each moved in the transaction that stores its job."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, cast

import apsw

from forebay.core.crons import CronMark, is_dealt_with, moved, steered
from forebay.core.job import Job, Receipt

_SELECT: Final = "SELECT name, schedule, due_at, paused, job_id, job_due_at, skipped FROM crons"
_PUT: Final = "INSERT OR REPLACE INTO crons VALUES (?,?,?,?,?,?,?)"


class SqlCrons:
    """A core.crons.CronBook over SQL. Each verb is one step of its book."""

    def __init__(
        self,
        connection: apsw.Connection,
        *,
        step: Callable[[], AbstractContextManager[Any]],
        tick: Callable[[float], float],
        store: Callable[[Job, float], Receipt],
    ) -> None:
        self._connection = connection
        self._step = step
        self._tick = tick
        self._store = store

    def marks(self) -> list[CronMark]:
        """Return what is known of every entry ever seen, by name."""
        return self._read(f"{_SELECT} ORDER BY name")

    def fire(
        self, name: str, due_at: float, job: Job | None, *, when: str, skipped: str = "", now: float
    ) -> Receipt | None:
        """Store the job of a due instant, or that there is none, and move the mark; None when it is there."""
        with self._step():
            now = self._tick(now)
            mark = self._mark(name)
            if is_dealt_with(mark, due_at, job, when=when, skipped=skipped):
                return None
            receipt = None if job is None else self._store(job, now)
            self._put(moved(mark, name, due_at, receipt, when=when, skipped=skipped))
            return receipt

    def forget(self, names: Sequence[str], *, now: float) -> int:
        """Remove the marks of entries; return how many there were."""
        with self._step():
            self._tick(now)
            gone = sum(self._mark(name) is not None for name in dict.fromkeys(names))
            self._connection.executemany("DELETE FROM crons WHERE name = ?", [(name,) for name in names])
            return gone

    def steer(self, name: str, *, paused: bool, now: float) -> CronMark:
        """Pause an entry or let it go on from `now`, and return its mark."""
        with self._step():
            mark = steered(self._mark(name) or CronMark(name, "", self._tick(now)), paused, self._tick(now))
            self._put(mark)
            return mark

    def _mark(self, name: str) -> CronMark | None:
        found = self._read(f"{_SELECT} WHERE name = ?", name)
        return found[0] if found else None

    def _put(self, mark: CronMark) -> None:
        self._connection.execute(_PUT, (*mark[:3], int(mark.paused), *mark[4:]))

    def _read(self, sql: str, *values: Any) -> list[CronMark]:
        rows = cast("list[tuple[Any, ...]]", self._connection.execute(sql, values).fetchall())
        return [
            CronMark(name, when, due_at, bool(paused), job_id, job_due_at, skipped)
            for name, when, due_at, paused, job_id, job_due_at, skipped in rows
        ]
