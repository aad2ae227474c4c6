"""Leaving: what a store hands over when it is moved to another engine; from then on it takes nothing.

A trigger on every table says so to whoever writes, by whatever way: a process that was cut off meanwhile,
one of an older version, a transaction of the user's own.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from forebay.brokers.postgres.address import psycopg_module, told
from forebay.brokers.postgres.deadly import SELECT_DEADLY
from forebay.brokers.postgres.intake import served_number
from forebay.brokers.postgres.rows import columns, record_of
from forebay.brokers.postgres.schema import NEWEST, OLDEST
from forebay.brokers.postgres.store import Row, Store
from forebay.brokers.postgres.wire import SELECT_SERVERS
from forebay.brokers.shared.left import Seal, Sealing
from forebay.brokers.shared.states import key_of
from forebay.core.job import JobRecord
from forebay.core.numbered_ids import Former
from forebay.core.quarantine import DeadlyInput
from forebay.errors import StoreUnavailableError
from forebay.ports.clock import Clock
from forebay.ports.moving import KeyOf, Stone, Tap

STONES_EACH_MAX: Final = 5_000
_TABLES: Final = ("jobs", "keys", "taps", "links", "deliveries", "deadly", "marks", "purged", "origins")
_SEAL: Final = (
    "CREATE TABLE leaving (origin text NOT NULL, done_at float8); INSERT INTO leaving VALUES ('{origin}');"
    " CREATE FUNCTION refuse_left() RETURNS trigger LANGUAGE plpgsql AS $left$ BEGIN"
    " RAISE EXCEPTION 'its jobs are moved to another engine'; END $left$;"
) + "".join(
    f" CREATE TRIGGER refuse_left BEFORE INSERT OR UPDATE OR DELETE ON {table}"
    " FOR EACH STATEMENT EXECUTE FUNCTION refuse_left();"
    for table in _TABLES
)
_UNSEAL: Final = "DROP FUNCTION refuse_left() CASCADE; DROP TABLE leaving"
_IS_SEALED: Final = "SELECT to_regclass(%s) IS NOT NULL"
_PAGE: Final = f"SELECT {columns('j')} FROM jobs j WHERE j.id < %s::uuid ORDER BY j.id DESC LIMIT %s"
_KEYS: Final = "SELECT tenant, key, job_id::text, body_hash FROM keys WHERE job_id = ANY(%s::uuid[])"
_STONES: Final = "SELECT id::text, tenant, at FROM purged WHERE id > %s::uuid ORDER BY id LIMIT %s"


class PostgresLeaving:
    """A ports.moving.Leaving."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._address = store.connections.address
        self._label = f"{self._address.label} (schema {self._address.schema})"
        self.sealing = Sealing(self, self._label, clock)

    async def users(self) -> int:
        """Return how many processes are connected: the listener of each holds a lock."""
        ((count,),) = await self._store.read(SELECT_SERVERS, [served_number(self._address.schema)])
        return int(count)

    async def seal(self, fresh: str) -> Seal:
        """Put the seal on under this name, or leave the one that is there; return what stands."""
        if not await self._is_sealed():
            await self._run(_SEAL.format(origin=fresh))
        ((origin, done_at),) = await self._store.read("SELECT origin, done_at FROM leaving")
        return Seal(str(origin), done_at is not None)

    async def unseal(self) -> bool:
        """Take it off where there is one. Returns False when all was moved: then it stays."""
        if await self._is_sealed():
            if (await self._store.read("SELECT done_at FROM leaving"))[0][0] is not None:
                return False
            await self._run(_UNSEAL)
        return True

    async def page(self, after: str | None, limit: int) -> list[JobRecord]:
        """Return jobs with their outputs, newest first."""
        return [record_of(row) for row in await self._store.read(_PAGE, [after or NEWEST, limit])]

    async def keys(self, ids: Sequence[str]) -> list[KeyOf]:
        """Return every idempotency key that means one of these jobs."""
        rows = await self._store.read(_KEYS, [list(ids)])
        return [KeyOf(tenant, key_of(key) or "", job_id, hashed) for tenant, key, job_id, hashed in rows]

    async def stones(self) -> AsyncIterator[list[Stone]]:
        """Go through what is remembered of removed jobs."""
        after = OLDEST
        while rows := await self._store.read(_STONES, [after, STONES_EACH_MAX]):
            yield [Stone(*row) for row in rows]
            after = rows[-1][0]

    async def counts(self) -> tuple[int, int | None]:
        """Return how many jobs and how many deliveries there are."""
        rows = await self._store.read("SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM deliveries)")
        return rows[0][0], rows[0][1]

    async def rest(self) -> tuple[list[DeadlyInput], list[Tap], Former | None]:
        """Return what belongs to no job."""
        deadly = [DeadlyInput(*row) for row in await self._store.read(SELECT_DEADLY)]
        taps = await self._store.read("SELECT task, paused, draining FROM taps WHERE paused OR draining")
        formers = await self._store.read("SELECT secret, upto FROM origins WHERE secret IS NOT NULL")
        return deadly, [Tap(*row) for row in taps], Former(*formers[0]) if formers else None

    async def put_aside(self) -> None:
        """Say for good that all of it was moved."""
        await self._run("UPDATE leaving SET done_at = extract(epoch FROM clock_timestamp())")

    async def _is_sealed(self) -> bool:
        rows: list[Row] = await self._store.read(_IS_SEALED, [f'"{self._address.schema}".leaving'])
        return bool(rows[0][0])

    async def _run(self, statements: str) -> None:
        """Run statements in one transaction of their own. Of two at once the second is told."""
        connection = await self._store.connections.take()
        whole = False
        try:
            async with connection.transaction():
                await connection.execute(statements, prepare=False)
            whole = True
        except psycopg_module().Error as error:
            raise StoreUnavailableError(f"{self._label}: {told(error)}") from error
        finally:
            await self._store.connections.give(connection, whole=whole)
