"""answered: a bound for what a server is asked, and whether it is the server or one queue that says nothing.

The client gives up a silent server after three heartbeats and more; who asked something knows it sooner.
A quorum queue may be left for good with nobody who answers for it (RabbitMQ 3.10: the server was killed
right after the queue was made): it can be declared, and whoever publishes or consumes waits for ever, or is
told of an internal error that ends the connection.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn

ANSWER_MAX_S: Final = 4.0  # for one question
ALIVE_MAX_S: Final = 2.0  # for a sign of life after one that had no answer
BLOCKED_LOOK_S: Final = 0.01


class StuckQueueError(Exception):
    """The server answers, one of its queues does not, or takes nothing."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"the queue {queue!r} cannot be used, though the server can")
        self.queue = queue


class BlockedError(Exception):
    """The server takes no message, of nobody, and says so."""

    def __init__(self) -> None:
        super().__init__("it takes no messages now: it is short of memory or of disk")


@asynccontextmanager
async def answered(connection: Any, queue: str) -> AsyncGenerator[None]:
    """Bound one question about a queue. Raises what the client and `say_who` raise."""
    try:
        async with asyncio.timeout(ANSWER_MAX_S):
            yield
    except internal_error():
        raise StuckQueueError(queue) from None
    except TimeoutError:
        await say_who(connection, queue)


async def say_who(connection: Any, queue: str) -> NoReturn:
    """Raise BlockedError, StuckQueueError, or TimeoutError for a connection that gives no sign of life: it is
    to be left."""
    if await _blocked(connection):
        raise BlockedError
    async with asyncio.timeout(ALIVE_MAX_S):
        channel = await connection.channel(publisher_confirms=False)
        await channel.close()
    raise StuckQueueError(queue)


def internal_error() -> type[Exception]:
    """Return what the client raises when a server meets something that it did not think of."""
    from aiormq.exceptions import ConnectionInternalError

    return ConnectionInternalError


async def _blocked(connection: Any) -> bool:
    """Return whether the server said that it reads nothing more from a connection that publishes."""
    try:
        async with asyncio.timeout(BLOCKED_LOOK_S):
            await connection.transport.connection.ready()
    except TimeoutError:
        return True
    return False
