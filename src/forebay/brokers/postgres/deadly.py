"""Deadly: inputs in quarantine, in a table, and in memory for what is asked of every submission."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from forebay.brokers.postgres.intake import LOCK, lock_numbers
from forebay.brokers.postgres.store import Row, Tx
from forebay.brokers.shared.quarantine import SharedQuarantine
from forebay.core.job import Job, Transition
from forebay.core.quarantine import Change, DeadlyInput, Inputs

T = TypeVar("T")

_COLUMNS: Final = "fingerprint, task, version, tenant, deaths, job_id, since, at, condemned_at"
SELECT_DEADLY: Final = f"SELECT {_COLUMNS} FROM deadly"
PUT_DEADLY: Final = (
    f"INSERT INTO deadly ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)"
    " ON CONFLICT (task, fingerprint) DO UPDATE SET version = excluded.version, tenant = excluded.tenant,"
    " deaths = excluded.deaths, job_id = excluded.job_id, since = excluded.since, at = excluded.at,"
    " condemned_at = excluded.condemned_at"
)
_DROP: Final = "DELETE FROM deadly WHERE task = %s AND fingerprint = %s"


class Deadly:
    """Counts deaths in the transaction that stores them. Servers do so one after another: it is seldom."""

    def __init__(self, schema: str) -> None:
        self.inputs = Inputs()
        self._lock = lock_numbers(schema, "deadly", [b""])

    def load(self, rows: Iterable[Row]) -> None:
        """Take what the table says in place of what was known."""
        kept = {(row[1], row[0]): DeadlyInput(*row) for row in rows}
        gone: list[Change] = [
            (one.task, one.fingerprint, None)
            for one in self.inputs
            if (one.task, one.fingerprint) not in kept
        ]
        self.inputs.apply([*gone, *((task, print_, row) for (task, print_), row in kept.items())])

    async def refresh(self, tx: Tx) -> None:
        """Be the only one to change the table until the transaction ends, and know what it says."""
        await tx.run(LOCK, [self._lock])
        self.load(await tx.rows(SELECT_DEADLY))

    async def charge(self, tx: Tx, ended: Sequence[tuple[Job, Transition]]) -> None:
        """Count what the ends of attempts say of their inputs."""
        await self.refresh(tx)
        for job, step in ended:
            assert step.charge is not None
            await self.store(tx, self.inputs.charged(job, step.charge, at=step.at))

    async def store(self, tx: Tx, changes: Sequence[Change]) -> None:
        """Store changes, and know them from now on, unless the transaction fails."""
        if not changes:
            return
        for task, fingerprint, row in changes:
            if row is None:
                await tx.run(_DROP, [task, fingerprint])
            else:
                await tx.run(PUT_DEADLY, list(row))
        back = self.inputs.apply(changes)
        tx.undo.append(lambda: self.inputs.apply(back))
        tx.news.deadly = True

    async def age_out(self, tx: Tx) -> None:
        """Forget what is too old."""
        if self.inputs.aged(tx.now):
            await self.refresh(tx)
            await self.store(tx, self.inputs.aged(tx.now))


Writer = Callable[[Callable[[Tx], Awaitable[T]], float], Awaitable[T]]


class PostgresQuarantine(SharedQuarantine):
    """Decided in the transaction that stores it, by one server at a time."""

    def __init__(self, deadly: Deadly, write: Any, seen_at: Callable[[float], float]) -> None:
        super().__init__(deadly.inputs, seen_at)
        self._deadly = deadly
        self._write = write

    async def _stored(self, decide: Callable[[], tuple[T, Sequence[Change]]], now: float) -> T:
        async def work(tx: Tx) -> T:
            await self._deadly.refresh(tx)
            answer, changes = decide()
            await self._deadly.store(tx, changes)
            return answer

        answer: T = await self._write(work, now)
        return answer
