"""Inside: a job stored in a transaction that is somebody else's, on a connection that is somebody else's."""

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final

from forebay.brokers.postgres.intake import Intake
from forebay.brokers.postgres.schema import VERSION
from forebay.brokers.postgres.store import TRIES_MAX, MetAnother, Row, Tx
from forebay.brokers.postgres.wire import channel_of
from forebay.brokers.shared.ids import IdMint
from forebay.brokers.shared.messages import messages_of
from forebay.core.job import Job, Receipt
from forebay.core.retention import Keeping, Retention
from forebay.errors import ConfigError, StoreUnavailableError, StoreVersionError

_SENDER: Final = secrets.token_hex(8)  # no server's: all of them hear
_LOOK: Final = (
    "SELECT extract(epoch FROM clock_timestamp())::float8, current_setting('search_path'),"
    " to_regclass(%s) IS NOT NULL"
)
_PATH: Final = "SELECT set_config('search_path', %s, true)"
_RING: Final = "SELECT count(pg_notify(%s, t)) FROM unnest(%s::text[]) AS u(t)"
_mint = IdMint(secrets.token_bytes)


class Plain:
    """The cursor of a connection that blocks, for code that awaits."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    async def execute(self, query: str, params: Any = None) -> None:
        """Run a statement."""
        self._cursor.execute(query, params)

    async def fetchall(self) -> list[Row]:
        """Return its rows."""
        rows: list[Row] = self._cursor.fetchall()
        return rows

    @property
    def rowcount(self) -> int:
        """How many rows it touched."""
        count: int = self._cursor.rowcount
        return count


async def enqueue_inside(cursor: Any, schema: str, make: Callable[[str, float], Job]) -> Receipt:
    """Store the job that `make` returns of a new id and the time, and leave nothing else in the transaction.

    What others may know of it they hear when the transaction is committed. Raises ConfigError and
    StoreVersionError for a schema that is none of ours, StoreUnavailableError when others are in the way.
    """
    tx = Tx(cursor, 0.0, 0.0)
    ((now, path, found),) = await tx.rows(_LOOK, [f'"{schema}".meta'])
    if not found:
        raise ConfigError(f"schema: there is no Forebay in {schema!r} here: start a server on it first")
    job = make(_mint.new(now), now)
    for tries in range(TRIES_MAX):
        tx = Tx(cursor, now, 0.0, again=tries > 0)
        await cursor.execute("SAVEPOINT forebay_submit")
        try:
            await tx.rows(_PATH, [f'"{schema}", pg_catalog'])
            receipt = await _stored(tx, schema, job, now)
            await tx.rows(_PATH, [path])
        except BaseException as error:
            await cursor.execute("ROLLBACK TO SAVEPOINT forebay_submit")
            await cursor.execute("RELEASE SAVEPOINT forebay_submit")
            if not isinstance(error, MetAnother):
                raise
        else:
            await cursor.execute("RELEASE SAVEPOINT forebay_submit")
            return receipt
    raise StoreUnavailableError(
        "other submissions with this idempotency key were in the way", retry_after_s=1.0
    )


async def _stored(tx: Tx, schema: str, job: Job, now: float) -> Receipt:
    ((version,),) = await tx.rows("SELECT version FROM meta")
    if version != VERSION:
        raise StoreVersionError(f"the schema {schema!r} has version {version}, this is for {VERSION}")
    intake = Intake(Keeping(Retention(0.0, 0.0)), schema)
    (receipt,) = await intake.enqueue(tx, [job], now)
    tx.news.nobodys = True
    texts: Sequence[str] = messages_of(tx.news, _SENDER)
    await tx.rows(_RING, [channel_of(schema), texts])
    return receipt
