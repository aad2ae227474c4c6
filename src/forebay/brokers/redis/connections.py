"""Connections: a few to one server, opened when needed, never waited for while it is away.

Not the driver's pool: that one sends a call again by itself, and one that grants jobs must not be sent twice.
"""

import asyncio
import contextlib
from typing import Any, Final

from forebay.brokers.redis.address import Address, redis_module, told
from forebay.errors import StoreUnavailableError
from forebay.ports.clock import Clock

CONNECTIONS_MAX: Final = 6  # of one process: the writer, its bells, and readers; the listener has its own
KEPT: Final = 2  # of these: for the writer and its bells
WAIT_MAX_S: Final = 10.0  # for one of them to be free
CONNECT_MAX_S: Final = 5.0
ANSWER_MAX_S: Final = 30.0  # for one call
LET_GO_MAX_S: Final = 1.0  # for a connection to be closed
BACKOFF_MIN_S, BACKOFF_MAX_S = 0.1, 2.0  # between two tries to connect

Connection = Any  # redis.asyncio.connection.Connection; the module is imported on use


def gone() -> tuple[type[BaseException], ...]:
    """Return the errors that say that a connection is of no use any more."""
    errors = redis_module().exceptions
    return (errors.ConnectionError, errors.TimeoutError, OSError, TimeoutError, asyncio.IncompleteReadError)


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
        self.answered_at: dict[Connection, float] = {}  # when each was known to live, of those that are

    async def take(self, *, kept: bool = False) -> Connection:
        """Return a connection that nobody waits on. Give it back with `give`.

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
            taken = self._free.pop() if self._free else await self._connect_in_turn()
        except BaseException:
            places.release()
            raise
        self._out[id(taken)] = places
        return taken

    async def give(self, connection: Connection, *, whole: bool) -> None:
        """Take a connection back; one that is not `whole` is closed."""
        try:
            if not whole or self._closed:
                self.answered_at.pop(connection, None)
                await let_go(connection)
            else:
                self._free.append(connection)
        finally:
            self._out.pop(id(connection)).release()

    async def forget_free(self) -> None:
        """Close those that are free: the server they went to is gone."""
        free, self._free = self._free, []
        for connection in free:
            self.answered_at.pop(connection, None)
        await let_go(*free)

    async def connect(self) -> Connection:
        """Return a new connection that is nobody's. Raises what the driver raises, or TimeoutError."""
        redis = redis_module()
        options = redis.asyncio.connection.parse_url(self.address.url)
        kind = options.pop("connection_class", redis.asyncio.connection.Connection)
        never = redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0)
        connection = kind(
            **options,
            protocol=2,
            retry=never,
            socket_connect_timeout=CONNECT_MAX_S,
            socket_timeout=None,  # `ask` has its own: the driver's may swallow a cancellation (Python 3.11)
            socket_keepalive=True,
            client_name="forebay",
        )
        try:
            async with asyncio.timeout(CONNECT_MAX_S):
                await connection.connect()
        except BaseException:
            await let_go(connection)
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
        except (redis_module().exceptions.RedisError, *gone()) as error:
            self._away = told(error)
            self._retry_at = self._clock.now() + self._backoff_s
            self._backoff_s = min(BACKOFF_MAX_S, self._backoff_s * 2)
            raise self._unavailable(self._away) from None
        self._away = None
        self._backoff_s = BACKOFF_MIN_S
        return connection

    def _unavailable(self, why: str) -> StoreUnavailableError:
        return StoreUnavailableError(f"{self.address.label}: {why}", retry_after_s=max(1.0, self._backoff_s))


async def ask(connection: Connection, *command: Any) -> Any:
    """Send one command and return its answer. Raises what the driver raises, or TimeoutError."""
    async with asyncio.timeout(ANSWER_MAX_S):
        await connection.send_command(*command, check_health=False)
        return await connection.read_response()


def is_ended(connection: Connection) -> bool:
    """Say whether the other side is known to have closed a connection. The driver shows it nowhere."""
    reader = connection._reader  # noqa: SLF001 - as its docstring says
    return reader is None or bool(reader.at_eof()) or reader.exception() is not None


async def let_go(*connections: Connection) -> None:
    """Close connections, whatever they are in the middle of, and leave none half open.

    TLS has a farewell that the other side answers; without an answer, or a caller that waits, it is left out.
    """
    await asyncio.gather(*map(_let_go, connections))


async def _let_go(connection: Connection) -> None:
    writer = connection._writer  # noqa: SLF001 - the driver forgets it before it is closed
    try:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(LET_GO_MAX_S):
                await connection.disconnect()
    finally:
        if writer is not None:
            writer.transport.abort()
