"""answered, closed: bounds for what a server is asked, and whether it or one of its queues says nothing.

The client gives up a silent server after three heartbeats and more; who asked something knows it sooner.
A quorum queue may be left for good with nobody who answers for it (RabbitMQ 3.10: the server was killed
right after the queue was made): it can be declared, and whoever publishes or consumes waits for ever, or is
told of an internal error that ends the connection.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn

from forebay.brokers.rabbitmq.address import told

ANSWER_MAX_S: Final = 4.0  # for one question
ALIVE_MAX_S: Final = 2.0  # for a sign of life after one that had no answer
BLOCKED_LOOK_S: Final = 0.01
CLOSE_MAX_S: Final = 2.0  # for a server that answers; one that blocks is left


class StuckQueueError(Exception):
    """The server answers, one of its queues does not, or takes nothing."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"the queue {queue!r} cannot be used, though the server can")
        self.queue = queue


class RefusedQueueError(Exception):
    """The server does not let us use one of its queues, and says why; the connection goes on."""

    def __init__(self, queue: str, error: Exception) -> None:
        super().__init__(f"the queue {queue!r} cannot be used: {told(error)}")
        self.different = isinstance(error, refusals()[0])  # it is there, made otherwise than asked for


class BlockedError(Exception):
    """The server takes no message, of nobody, and says so."""

    def __init__(self) -> None:
        super().__init__("it takes no messages now: it is short of memory or of disk")


@asynccontextmanager
async def answered(connection: Any, queue: str) -> AsyncGenerator[None]:
    """Bound one question about a queue. Raises RefusedQueueError, what the client and `say_who` raise; the
    channel that asked is of no use then."""
    try:
        async with asyncio.timeout(ANSWER_MAX_S):
            yield
    except refusals() as error:
        raise RefusedQueueError(queue, error) from None
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


async def closed(one: Any) -> None:
    """Close a connection or a channel, within a bound, whatever state it is in."""
    if one is None or one.is_closed:
        return
    with contextlib.suppress(Exception):
        async with asyncio.timeout(CLOSE_MAX_S):
            await one.close()


def internal_error() -> type[Exception]:
    """Return what the client raises when a server meets something that it did not think of."""
    from aiormq.exceptions import ConnectionInternalError

    return ConnectionInternalError


def refusals() -> tuple[type[Exception], ...]:
    """Return what the client raises when a server closes a channel for the sake of one queue."""
    from aiormq import exceptions

    return (
        exceptions.ChannelPreconditionFailed,
        exceptions.ChannelAccessRefused,
        exceptions.ChannelLockedResource,
        exceptions.ChannelNotFoundEntity,
    )


async def _blocked(connection: Any) -> bool:
    """Return whether the server said that it reads nothing more from a connection that publishes."""
    try:
        async with asyncio.timeout(BLOCKED_LOOK_S):
            await connection.transport.connection.ready()
    except TimeoutError:
        return True
    return False
