"""Upkeep: a look at what other processes did each second, and sums in place of long lists of differences."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from forebay.brokers.postgres.address import psycopg_module
from forebay.brokers.postgres.deadly import SELECT_DEADLY, Deadly
from forebay.brokers.postgres.outbox import SELECT_DUE, PostgresOutbox
from forebay.brokers.postgres.schema import COUNTED_SQL
from forebay.brokers.postgres.store import Store, Tx
from forebay.brokers.shared.committer import Committer
from forebay.brokers.shared.news import News
from forebay.errors import ForebayError, StoreUnavailableError
from forebay.loops import goes_on

LOOK_S: Final = 1.0
DIFFERENCES_MAX: Final = 400  # rows of tallies; past it they are summed up
VACUUM_EACH: Final = 10  # sums: then the room of the old rows is used again

LOCK_MAX_S: Final = 0.1  # for nobody to be in the middle of a change: others wait behind who waits for that

_SUM_UP: Final = (
    f"WITH gone AS (DELETE FROM tallies WHERE {COUNTED_SQL}"
    " RETURNING task, tenant, priority, state, jobs, bytes, n){noted}"
    " INSERT INTO tallies SELECT task, tenant, priority, state, sum(jobs), sum(bytes) FROM gone"
    " GROUP BY 1, 2, 3, 4 HAVING sum(jobs) <> 0 OR sum(bytes) <> 0"
)
_SUM_ALL: Final = _SUM_UP.format(
    noted=", noted AS (UPDATE meta SET summed = coalesce((SELECT max(n) FROM gone), summed))"
)
_SUM_SOME: Final = _SUM_UP.format(noted="")
_WAIT: Final = f"SET LOCAL lock_timeout = {int(LOCK_MAX_S * 1000)}"
_LOCK: Final = "LOCK TABLE tallies IN SHARE ROW EXCLUSIVE MODE"
_COUNT: Final = f"SELECT count(*) FROM (SELECT 1 FROM tallies WHERE {COUNTED_SQL} LIMIT %s) AS t"
_COUNT_ALL: Final = f"SELECT count(*) FROM tallies WHERE {COUNTED_SQL}"
_GROUPS: Final = (
    f"SELECT count(*) FROM (SELECT 1 FROM tallies WHERE {COUNTED_SQL}"
    " GROUP BY task, tenant, priority, state) AS t"
)
_TABLES: Final = ("jobs", "keys", "links", "deliveries", "deadly", "marks")


class Upkeep:
    """One loop for as long as the store is open."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        deadly: Deadly,
        outbox: PostgresOutbox,
        ring: Callable[[News], None],
    ) -> None:
        self._store = store
        self._committer = committer
        self._deadly = deadly
        self._outbox = outbox
        self._ring = ring
        self._soon = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._sums = 0

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.ensure_future(goes_on(self._run, "look after the store"))

    def look_soon(self) -> None:
        """Look at once: somebody said that there is something to see."""
        self._soon.set()

    async def close(self) -> None:
        """Stop; twice is harmless."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def look(self) -> None:
        """See what is in the database. In turn with this process's own writes, so that nothing older than
        them replaces what they left in memory."""

        async def work(tx: Tx) -> bool:
            self._deadly.load(await tx.rows(SELECT_DEADLY))
            ((due_at,),) = await tx.rows(SELECT_DUE)
            return self._outbox.saw(due_at)  # the counts are read as the transaction ends

        if await self._committer.alone(work, 0.0):
            news = News()
            news.owed = True
            self._ring(news)

    async def scrub(self) -> None:
        """Rewrite nothing, but let the room of removed rows be overwritten and their texts be unreachable."""
        for table in _TABLES:
            await self._vacuum(f"VACUUM {table}")

    async def _run(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._soon.wait()
        self._soon.clear()
        with contextlib.suppress(ForebayError, psycopg_module().Error):
            await self.look()
            await self._sum_up()

    async def _sum_up(self) -> None:
        ((count,),) = await self._store.read(_COUNT, [DIFFERENCES_MAX])
        if count < DIFFERENCES_MAX:
            return
        ((groups,),) = await self._store.read(_GROUPS)
        ((count,),) = await self._store.read(_COUNT_ALL)
        if count < 2 * groups + DIFFERENCES_MAX:
            return
        try:
            await self._committer.alone(_sum_all, 0.0)
        except StoreUnavailableError:  # somebody's own transaction stores a job, for long: see Intake
            await self._committer.alone(_sum_some, 0.0)
        self._sums += 1
        if self._sums % VACUUM_EACH == 0:
            await self._vacuum("VACUUM tallies")

    async def _vacuum(self, statement: str) -> None:
        connection = await self._store.connections.take()
        whole = False
        try:
            await connection.execute(statement, prepare=False)
            whole = True
        finally:
            await self._store.connections.give(connection, whole=whole)


async def _sum_all(tx: Tx) -> None:
    """Sum up all differences, while nobody adds any, and note that nobody has to look at them any more."""
    await tx.run(_WAIT)
    await tx.run(_LOCK)
    await tx.run(_SUM_ALL)


async def _sum_some(tx: Tx) -> None:
    """Sum up the differences that are stored."""
    await tx.run(_SUM_SOME)
