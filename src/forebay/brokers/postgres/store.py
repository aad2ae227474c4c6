"""Store, Tx: transactions on the database: its time, further tries where that is safe, errors in a line."""

import select
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from forebay.brokers.postgres.address import psycopg_module, told
from forebay.brokers.postgres.connections import Connection, Connections
from forebay.brokers.postgres.schema import COUNTED_SQL, SUCCEEDED
from forebay.brokers.shared.news import News
from forebay.errors import StoreBrokenError, StoreFullError, StoreUnavailableError
from forebay.ports.clock import Clock

T = TypeVar("T")
Row = tuple[Any, ...]

TRIES_MAX: Final = 5  # of a transaction that met another one
SELECT_NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"
# What a process tells others of the counts, read in the step that ends a transaction.
SELECT_TALLIES: Final = (
    f"SELECT task, tenant, state, sum(jobs)::int8, sum(bytes)::int8 FROM tallies WHERE state < {SUCCEEDED}"
    f" AND {COUNTED_SQL} GROUP BY 1, 2, 3 HAVING sum(jobs) <> 0"
)
SELECT_TAPS: Final = "SELECT task, paused, draining FROM taps"


class MetAnother(Exception):  # never leaves the store
    """Another transaction was in the way: roll back and do it anew."""


class Tx:
    """One transaction. What it does in memory is undone with it, what it has to tell is told after it."""

    __slots__ = ("_cursor", "again", "news", "now", "skew_s", "undo")

    def __init__(self, cursor: Any, now: float, skew_s: float, *, again: bool = False) -> None:
        self._cursor = cursor
        self.again = again  # an earlier try met another transaction
        self.now = now  # of the database
        self.skew_s = skew_s  # what the caller's clock is ahead of it
        self.undo: list[Callable[[], object]] = []
        self.news = News()

    async def rows(self, query: str, params: Sequence[Any] = ()) -> list[Row]:
        """Run a statement and return its rows."""
        await self._cursor.execute(query, params or None)
        rows: list[Row] = await self._cursor.fetchall()
        return rows

    async def run(self, query: str, params: Sequence[Any] = ()) -> int:
        """Run a statement and return how many rows it touched."""
        await self._cursor.execute(query, params or None)
        count: int = self._cursor.rowcount
        return count


Work = Callable[[Tx], Awaitable[T]]


class Store:
    """Transactions one after another for whoever writes, and statements of their own for whoever reads."""

    def __init__(
        self,
        connections: Connections,
        clock: Clock,
        *,
        clock_sql: str | None,
        on_counts: Callable[[Sequence[Row], Sequence[Row]], None],
    ) -> None:
        self.connections = connections
        self._clock = clock
        self._clock_sql = clock_sql  # None: the time is that of the caller
        self._on_counts = on_counts
        self._latest = 0.0  # of given times
        self._asked_at = 0.0  # when the newest statement that is a transaction by itself was sent
        self.skew_s = 0.0  # as the newest transaction found it

    def seen_at(self, now: float) -> float:
        """Return the database's time for a caller at `now`, without asking it: good for retention."""
        return self._tick(now) if self._clock_sql is None else now - self.skew_s

    async def write(self, work: Work[T], *, now: float) -> tuple[T, News]:
        """Run `work` in a transaction and return what it returns, and what there is to tell.

        Raises StoreUnavailableError: the outcome is unknown then, or nothing was stored. What `work` itself
        raises rolls it back.
        """
        psycopg = psycopg_module()
        met = (MetAnother, psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
        for left in reversed(range(TRIES_MAX)):
            try:
                return await self._write_once(work, now, again=left < TRIES_MAX - 1)
            except met as error:
                if not left:
                    raise self._unavailable("too many writers met on the same jobs") from error
        raise AssertionError("unreachable")

    async def read(self, query: str, params: Sequence[Any] = ()) -> list[Row]:
        """Run one statement outside of any transaction; once more on a new connection where one was stale."""
        for fresh in (False, True):
            connection = await self.connections.take()
            whole = False
            try:
                cursor = connection.cursor(binary=True)
                await cursor.execute(query, params or None)
                rows: list[Row] = await cursor.fetchall()
                whole = True
            except psycopg_module().Error as error:
                if fresh or not _is_gone(error, connection):
                    raise self._mapped(error) from error
            else:
                return rows
            finally:
                await self.connections.give(connection, whole=whole)
            await self.connections.forget_free()
        raise AssertionError("unreachable")

    def clock(self, now: float) -> tuple[str, list[float]]:
        """Return the time as an expression of SQL and its parameters, for a statement run by `one`."""
        return ("%s::float8", [self._tick(now)]) if self._clock_sql is None else (f"({self._clock_sql})", [])

    def saw(self, at: float) -> float:
        """Take in the time that the statement before returned; return what the caller's clock is ahead."""
        if self._clock_sql is not None:
            self.skew_s = self._asked_at - at
        return self.skew_s

    async def one(self, query: str, params: Sequence[Any]) -> list[Row] | None:
        """Run one statement that is a transaction by itself. None: nothing was stored, and a transaction of
        several statements may find out why. Raises StoreUnavailableError: the outcome is unknown."""
        connection = await self.connections.take(kept=True)
        whole = False
        try:
            if _has_word(connection):  # most likely that it is gone: nothing must be risked on it
                whole = True
                return None
            cursor = connection.cursor(binary=True)
            self._asked_at = self._clock.now()
            await cursor.execute(query, params)
            rows: list[Row] = await cursor.fetchall()
            whole = True
        except psycopg_module().Error as error:
            whole = error.sqlstate is not None and not connection.closed
            if whole:
                return None
            raise self._mapped(error) from error
        else:
            return rows
        finally:
            await self.connections.give(connection, whole=whole)

    async def _write_once(self, work: Work[T], now: float, *, again: bool) -> tuple[T, News]:
        connection, at = await self._begin(now)
        whole = False
        cursor = connection.cursor(binary=True)
        tx = Tx(cursor, at, self.skew_s, again=again)
        try:
            answer = await work(tx)
            counts, taps = await self._end(connection)
            whole = True
        except BaseException as error:
            for step in reversed(tx.undo):
                step()
            whole = await _rolled_back(connection)
            if isinstance(error, psycopg_module().Error) and not _is_retried(error):
                raise self._mapped(error) from error
            raise
        finally:
            await self.connections.give(connection, whole=whole)
        self._on_counts(counts, taps)
        return answer, tx.news

    async def _begin(self, now: float) -> tuple[Connection, float]:
        """Return a connection in a transaction, and the time. Nothing is written yet: a stale connection
        costs another try and nothing else."""
        for fresh in (False, True):
            connection = await self.connections.take(kept=True)
            try:
                cursor = connection.cursor()
                if self._clock_sql is None:
                    await cursor.execute("BEGIN", prepare=False)
                    return connection, self._tick(now)
                now = self._clock.now()  # a caller's may have waited for its turn
                await cursor.execute(f"BEGIN; {self._clock_sql}", prepare=False)
                cursor.nextset()
                (at,) = await cursor.fetchone()
            except BaseException as error:
                await self.connections.give(connection, whole=False)
                if not isinstance(error, psycopg_module().Error):
                    raise
                if fresh:
                    raise self._mapped(error) from error
                await self.connections.forget_free()
            else:
                self.skew_s = now - at
                return connection, at
        raise AssertionError("unreachable")

    async def _end(self, connection: Connection) -> tuple[list[Row], list[Row]]:
        """Commit, and return the counts as they are with it."""
        cursor = connection.cursor()
        await cursor.execute(f"{SELECT_TALLIES}; {SELECT_TAPS}; COMMIT", prepare=False)
        counts: list[Row] = await cursor.fetchall()
        cursor.nextset()
        taps: list[Row] = await cursor.fetchall()
        return counts, taps

    def _tick(self, now: float) -> float:
        if now > self._latest:
            self._latest = now
        return self._latest

    def _mapped(self, error: BaseException) -> Exception:
        errors = psycopg_module().errors
        full = (errors.DiskFull, errors.OutOfMemory)
        if isinstance(error, full):
            return StoreFullError(f"{self.connections.address.label}: {told(error)}")
        if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName | errors.UndefinedColumn):
            return StoreBrokenError(f"{self.connections.address.label}: its tables have gone: {told(error)}")
        return self._unavailable(told(error))

    def _unavailable(self, why: str) -> StoreUnavailableError:
        return StoreUnavailableError(f"{self.connections.address.label}: {why}", retry_after_s=1.0)


def _is_retried(error: BaseException) -> bool:
    errors = psycopg_module().errors
    return isinstance(error, errors.SerializationFailure | errors.DeadlockDetected)


def _has_word(connection: Connection) -> bool:
    """Say whether the server of an idle connection has said something: as a rule its last word."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _is_gone(error: Any, connection: Connection) -> bool:
    """Say whether a connection is of no use any more. A statement that took too long leaves it as it was."""
    away = isinstance(error, psycopg_module().OperationalError)
    return bool(connection.closed) or (
        away and (error.sqlstate is None or error.sqlstate.startswith(("08", "57P")))
    )


async def _rolled_back(connection: Connection) -> bool:
    """Leave a transaction that failed; return whether the connection is good for another one."""
    if connection.closed:
        return False
    try:
        await connection.execute("ROLLBACK", prepare=False)
    except BaseException:
        return False
    return True
