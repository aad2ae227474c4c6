"""RabbitTransport: a ports.transport.Transport on RabbitMQ."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from forebay.brokers.rabbitmq.address import Address, told
from forebay.brokers.rabbitmq.alive import BlockedError, RefusedQueueError, StuckQueueError
from forebay.brokers.rabbitmq.line import Line
from forebay.brokers.rabbitmq.mending import Mending
from forebay.brokers.rabbitmq.session import LATE, Session
from forebay.errors import DeliveryUnavailableError, ForebayError
from forebay.ports.transport import Hint, Traits

TRAITS: Final = Traits(
    name="RabbitMQ",
    counted=True,
    each=True,
    delays=True,
    durable=True,
    note="what other processes hold is not counted: at most 64 messages of a task each",
)
AGAIN_S: Final = 0.2  # after a connection could not be made, everybody is told so for so long


class _Token(NamedTuple):
    line: Line
    message: Any


class RabbitTransport:
    """Hints of a task are messages of the quorum queue PREFIX.TASK, its dead letters of PREFIX:dead.TASK."""

    traits = TRAITS

    def __init__(self, address: Address, session: Session) -> None:
        self._address = address
        self._session: Session | None = session
        self._opening = asyncio.Lock()
        self._away: tuple[float, DeliveryUnavailableError] | None = None
        self._mending = Mending(address)
        self._ops: set[asyncio.Task[None]] = set()
        self._leaving: set[asyncio.Future[None]] = set()  # sessions that are being closed
        self._closed = False

    @classmethod
    async def open(cls, url: str) -> "RabbitTransport":
        """Connect. Raises ConfigError for a URL that cannot be read, DeliveryUnavailableError or
        StoreVersionError for a server that cannot be used, each with one line."""
        address = Address.of(url)
        return cls(address, await Session.open(address))

    async def send(self, task: str, bodies: Sequence[bytes]) -> None:
        """Hand hints over; returns when the server has confirmed them."""
        async with self._on_session() as session:
            await session.publish(self._address.queue(task), bodies)

    async def receive(self, task: str, *, limit: int, wait_s: float) -> list[Hint]:
        """Return up to `limit` hints as soon as there is one; none after `wait_s`."""
        async with self._on_session() as session:
            line = await session.line(task)
            messages = await line.take(limit, wait_s)
            if not messages and line.broken:
                raise DeliveryUnavailableError(f"{self._address.label}: the queue of {task!r} went away")
        return [Hint(message.body, _Token(line, message)) for message in messages]

    async def ack(self, task: str, hints: Sequence[Hint]) -> None:
        """Be done with hints."""
        async with self._on_session():
            for token in _tokens(hints):
                await token.line.ack(token.message)

    async def give_back(self, task: str, hints: Sequence[Hint], *, delay_s: float) -> None:
        """Let hints come again after `delay_s`: kept here until then, and published anew, behind what waits.
        So nothing counts how often a job was not ready yet, and no limit of deliveries is met."""
        self._check()
        for token in _tokens(hints):
            if token.line.holds(token.message):
                token.line.keep(token.message, delay_s, partial(self._again, task, token))

    async def bury(self, task: str, bodies: Sequence[bytes]) -> None:
        """Put hints into the queue of dead letters, which drops the oldest past its bound."""
        bound = {"x-max-length": self._address.dead_max, "x-overflow": "drop-head"}
        async with self._on_session() as session:
            await session.publish(self._address.dead(task), bodies, **bound)

    async def depth(self, task: str) -> int | None:
        """Return how many hints wait or are held here."""
        async with self._on_session() as session:
            waiting = await session.declare(self._address.queue(task), again=True)
            line = session.known_line(task)
        return waiting + (0 if line is None or line.broken else line.here)

    async def forget(self, task: str) -> None:
        """Remove the queues of a task."""
        async with self._on_session() as session:
            await session.remove(self._address.queue(task))
            await session.remove(self._address.dead(task))

    async def close(self) -> None:
        """Let go of both connections; the server has back what was held."""
        self._closed = True
        await self._mending.close()
        for op in self._ops:
            op.cancel()
        await asyncio.gather(*self._ops, return_exceptions=True)
        async with self._opening:
            if self._session is not None:
                await self._let_go(self._session)
        await asyncio.gather(*self._leaving, return_exceptions=True)

    def _let_go(self, session: Session) -> "asyncio.Future[None]":
        """Close a session, to its end also when whoever waits for that is cancelled: one that is left half
        open keeps what it holds from everybody."""
        self._session = None
        op = asyncio.ensure_future(session.close())
        self._leaving.add(op)
        op.add_done_callback(self._leaving.discard)
        return asyncio.shield(op)

    def _again(self, task: str, token: _Token) -> None:
        op = asyncio.ensure_future(self._publish_again(task, token))
        self._ops.add(op)
        op.add_done_callback(self._ops.discard)

    async def _publish_again(self, task: str, token: _Token) -> None:
        try:
            await self.send(task, [token.message.body])
        except DeliveryUnavailableError:
            let_go = token.line.back  # else it is held here as long as the connection lasts
        else:
            let_go = token.line.ack
        with contextlib.suppress(DeliveryUnavailableError):  # the server has it back with the connection
            async with self._on_session():
                await let_go(token.message)

    def _check(self) -> None:
        if self._closed:
            raise DeliveryUnavailableError(f"{self._address.label}: the transport is closed")

    @asynccontextmanager
    async def _on_session(self) -> AsyncGenerator[Session]:
        """Give a session that is open; whatever fails on it ends it. Raises DeliveryUnavailableError."""
        session = await self._current()
        try:
            yield session
        except DeliveryUnavailableError:
            raise
        except asyncio.CancelledError:
            raise
        except (BlockedError, RefusedQueueError) as error:
            raise DeliveryUnavailableError(f"{self._address.label}: {error}") from None
        except StuckQueueError as error:
            raise DeliveryUnavailableError(f"{self._address.label}: {self._mending.note(error)}") from None
        except TimeoutError:
            await self._end(session)
            raise DeliveryUnavailableError(f"{self._address.label}: {LATE}") from None
        except Exception as error:
            await self._end(session)
            raise DeliveryUnavailableError(f"{self._address.label}: {told(error)}") from error

    async def _current(self) -> Session:
        self._check()
        async with self._opening:
            self._check()
            if self._session is not None and self._session.usable:
                return self._session
            now = asyncio.get_running_loop().time()
            if self._away is not None and now < self._away[0]:
                raise self._away[1]
            if self._session is not None:
                await self._let_go(self._session)
            try:
                self._session = await Session.open(self._address)
            except ForebayError as error:
                away = DeliveryUnavailableError(str(error))
                self._away = (asyncio.get_running_loop().time() + AGAIN_S, away)
                raise away from None
            return self._session

    async def _end(self, session: Session) -> None:
        async with self._opening:
            if self._session is session:
                await self._let_go(session)


def _tokens(hints: Sequence[Hint]) -> list[_Token]:
    return [hint.token for hint in hints if isinstance(hint.token, _Token)]
