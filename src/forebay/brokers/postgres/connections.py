"""Connections: a few to one database, opened when needed, never waited for while it is away.

Not the driver's pool: that one waits for a database that is away and keeps the reason in a log. Here whoever
asks is told at once, with the reason, until the next try is due.
"""

import asyncio
from typing import Any, Final

from forebay.brokers.postgres.address import Address, psycopg_module, told
from forebay.errors import StoreUnavailableError
from forebay.ports.clock import Clock

CONNECTIONS_MAX: Final = 6  # of one process: the writer, its bells, and readers; the listener has its own
KEPT: Final = 2  # of these: for the writer and its bells
WAIT_MAX_S: Final = 10.0  # for one of them to be free
CONNECT_MAX_S: Final = 8.0
LET_GO_MAX_S: Final = 1.0  # for a connection that is being made when nobody wants it any more
BACKOFF_MIN_S, BACKOFF_MAX_S = 0.1, 2.0  # between two tries to connect
STATEMENT_MAX_MS: Final = 30_000
IDLE_IN_TRANSACTION_MAX_MS: Final = 60_000  # a process that hangs in mid-transaction lets go of its locks

# Plans must not change their mind while a table grows from nothing to millions between two looks of the
# statistics: every statement here has an index for it.
_SESSION: Final = (
    "SET search_path TO {schema}, pg_catalog; SET statement_timeout = {statement};"
    " SET idle_in_transaction_session_timeout = {idle}; SET enable_seqscan = off;"
    " SET enable_bitmapscan = off;"
    " SET jit = off; SET timezone = 'UTC'; SET client_min_messages = warning;"
    " SET default_transaction_isolation = 'read committed';"
    # Whoever set it to something stronger keeps that; an answer must never be weaker than the disk.
    " SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') = 'off'"
)

Connection = Any  # psycopg.AsyncConnection; the module is imported on use


class Connections:
    """Hands out connections. Raises StoreUnavailableError, with the reason, while there are none."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self.address = address
        self._clock = clock
        self._free: list[Connection] = []
        self._slots = asyncio.Semaphore(CONNECTIONS_MAX - KEPT)
        self._kept = asyncio.Semaphore(KEPT)
        self._out: dict[int, asyncio.Semaphore] = {}  # by connection: whose place it has
        self._closed = False
        self._away: str | None = None  # why the last try to connect failed
        self._retry_at = 0.0
        self._backoff_s = BACKOFF_MIN_S
        self.opened = 0  # connections ever made

    async def take(self, *, kept: bool = False) -> Connection:
        """Return a connection outside of any transaction. Give it back with `give`.

        `kept`: for the writer, whose renewals must not wait for readers, or for the bells.
        """
        if self._closed:
            raise StoreUnavailableError("the store is closed")
        places = self._kept if kept else self._slots
        try:
            async with asyncio.timeout(WAIT_MAX_S):
                await places.acquire()
        except TimeoutError:
            raise self._unavailable("all connections are busy") from None
        try:
            taken = self._held() or await self._connect_in_turn()
        except BaseException:
            places.release()
            raise
        self._out[id(taken)] = places
        return taken

    def _held(self) -> Connection | None:
        while self._free:
            held = self._free.pop()
            if not held.closed:
                return held
        return None

    async def give(self, connection: Connection, *, whole: bool) -> None:
        """Take a connection back; one that is not `whole` is closed."""
        try:
            if not whole or self._closed or connection.closed:
                await connection.close()
            else:
                self._free.append(connection)
        finally:
            self._out.pop(id(connection)).release()

    async def forget_free(self) -> None:
        """Close those that are free: the server they went to is gone."""
        free, self._free = self._free, []
        for connection in free:
            await connection.close()

    async def connect(self) -> Connection:
        """Return a new connection that is nobody's. Raises what the driver raises, or TimeoutError.

        A caller that is cancelled meanwhile leaves nothing open.
        """
        making = asyncio.ensure_future(self._connect())
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            await asyncio.wait({making}, timeout=LET_GO_MAX_S)
            making.cancel()
            if making.done() and not making.cancelled() and making.exception() is None:
                await making.result().close()
            raise

    async def _connect(self) -> Connection:
        psycopg = psycopg_module()
        async with asyncio.timeout(CONNECT_MAX_S):
            connection = await psycopg.AsyncConnection.connect(self.address.conninfo, autocommit=True)
        try:
            session = _SESSION.format(
                schema=f'"{self.address.schema}"', statement=STATEMENT_MAX_MS, idle=IDLE_IN_TRANSACTION_MAX_MS
            )
            await connection.execute(session, prepare=False)
        except BaseException:
            await connection.close()
            raise
        self.opened += 1
        return connection

    async def close(self) -> None:
        """Close what is free; what is on its way is closed as it comes back."""
        self._closed = True
        await self.forget_free()

    async def _connect_in_turn(self) -> Connection:
        if self._away is not None and self._clock.now() < self._retry_at:
            raise self._unavailable(self._away)
        try:
            connection = await self.connect()
        except (psycopg_module().Error, TimeoutError, OSError) as error:
            self._away = told(error) if not isinstance(error, TimeoutError) else "it did not answer in time"
            self._retry_at = self._clock.now() + self._backoff_s
            self._backoff_s = min(BACKOFF_MAX_S, self._backoff_s * 2)
            raise self._unavailable(self._away) from None
        self._away = None
        self._backoff_s = BACKOFF_MIN_S
        return connection

    def _unavailable(self, why: str) -> StoreUnavailableError:
        return StoreUnavailableError(f"{self.address.label}: {why}", retry_after_s=max(1.0, self._backoff_s))
