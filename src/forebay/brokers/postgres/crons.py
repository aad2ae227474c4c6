"""PostgresCrons: the marks of cron entries; two servers that are due at once fire once."""

from collections.abc import Sequence
from typing import Any, Final

from forebay.brokers.postgres.intake import LOCK, Intake, lock_numbers
from forebay.brokers.postgres.store import Row, Store, Tx
from forebay.core.crons import CronMark, is_dealt_with, moved, steered
from forebay.core.job import Job, Receipt

_COLUMNS: Final = 'name, "when", due_at, paused, job_id, job_due_at, skipped'
_SELECT: Final = f"SELECT {_COLUMNS} FROM marks"
PUT_MARK: Final = (
    f"INSERT INTO marks ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (name) DO UPDATE SET"
    ' "when" = excluded."when", due_at = excluded.due_at, paused = excluded.paused, job_id = excluded.job_id,'
    " job_due_at = excluded.job_due_at, skipped = excluded.skipped"
)


class PostgresCrons:
    """A ports.crons.Crons."""

    def __init__(self, write: Any, store: Store, intake: Intake, schema: str) -> None:
        self._write = write
        self._store = store
        self._intake = intake
        self._schema = schema

    async def marks(self) -> list[CronMark]:
        """Return what is known of every entry ever seen, by name."""
        return sorted(CronMark(*row) for row in await self._store.read(_SELECT))

    async def fire(
        self, name: str, due_at: float, job: Job | None, *, when: str, skipped: str = "", now: float
    ) -> Receipt | None:
        """Store the job of a due instant and move the mark, durably and in one step."""

        async def work(tx: Tx) -> Receipt | None:
            mark = await self._mark(tx, name)
            if is_dealt_with(mark, due_at, job, when=when, skipped=skipped):
                return None
            receipt = None if job is None else (await self._intake.enqueue(tx, [job], now))[0]
            await tx.run(
                PUT_MARK, mark_values(moved(mark, name, due_at, receipt, when=when, skipped=skipped))
            )
            return receipt

        receipt: Receipt | None = await self._write(work, now)
        return receipt

    async def steer(self, name: str, *, paused: bool, now: float) -> CronMark:
        """Pause an entry or let it go on, durably, and return its mark."""

        async def work(tx: Tx) -> CronMark:
            mark = steered(await self._mark(tx, name) or CronMark(name, "", tx.now), paused, tx.now)
            await tx.run(PUT_MARK, mark_values(mark))
            return mark

        mark: CronMark = await self._write(work, now)
        return mark

    async def forget(self, names: Sequence[str], *, now: float) -> int:
        """Remove the marks of entries, durably; return how many there were."""

        async def work(tx: Tx) -> int:
            return await tx.run("DELETE FROM marks WHERE name = ANY(%s::text[])", [list(names)])

        count: int = await self._write(work, now)
        return count

    async def _mark(self, tx: Tx, name: str) -> CronMark | None:
        await tx.run(LOCK, [lock_numbers(self._schema, "cron", [name.encode()])])
        rows = await tx.rows(f"{_SELECT} WHERE name = %s", [name])
        return CronMark(*rows[0]) if rows else None


def mark_values(mark: CronMark) -> Row:
    """Return the parameters of PUT_MARK."""
    due_at = None if mark.job_due_at is None else float(mark.job_due_at)
    return mark.name, mark.when, float(mark.due_at), mark.paused, mark.job_id, due_at, mark.skipped
