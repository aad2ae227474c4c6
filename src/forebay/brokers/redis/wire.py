"""Wire: how servers on one store tell each other what changed: PUBLISH and SUBSCRIBE, a doorbell and no more.

Whatever is lost here is found by looking: nodes poll, waiters look again, and the counts are read anew each
second.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Any, Final

import msgspec

from forebay.brokers.redis.address import redis_module
from forebay.brokers.redis.connections import Connections, ask, gone, let_go
from forebay.brokers.shared.messages import Message, messages_of, news_of
from forebay.brokers.shared.news import News
from forebay.errors import ForebayError

LISTEN_AGAIN_S: Final = 1.0  # after a listener's connection went away
LISTEN_EACH_S: Final = 30.0  # one wait for messages; a quiet connection is asked whether it lives


class Wire:
    """Sends what is told here, and hears what others tell."""

    def __init__(self, connections: Connections, hear: Callable[[News], None]) -> None:
        self._connections = connections
        self._hear = hear
        self._channel = connections.address.channel
        self._sender = secrets.token_hex(8)
        self._pending = News()
        self._told = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        self._tasks = [asyncio.ensure_future(self._send()), asyncio.ensure_future(self._listen())]

    def tell(self, news: News) -> None:
        """Tell others, soon. What comes together goes together."""
        if news.work or news.cancels or news.changes or news.owed or news.deadly:
            self._pending.add_told(news)
            self._told.set()

    async def close(self) -> None:
        """Stop; twice is harmless."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _send(self) -> None:
        while True:
            await self._told.wait()
            self._told.clear()
            news, self._pending = self._pending, News()
            with contextlib.suppress(ForebayError, redis_module().exceptions.RedisError, *gone()):
                await self._publish(messages_of(news, self._sender))

    async def _publish(self, texts: list[str]) -> None:
        connection = await self._connections.take()
        whole = False
        try:
            for text in texts:
                await ask(connection, "PUBLISH", self._channel, text)
            whole = True
        finally:
            await self._connections.give(connection, whole=whole)

    async def _listen(self) -> None:
        while True:
            with contextlib.suppress(redis_module().exceptions.RedisError, *gone()):
                await self._listen_once()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LISTEN_AGAIN_S):
                    await asyncio.Event().wait()

    async def _listen_once(self) -> None:
        connection = await self._connections.connect()
        try:
            await ask(connection, "SUBSCRIBE", self._channel)
            while True:
                try:
                    async with asyncio.timeout(LISTEN_EACH_S):
                        self._heard(await connection.read_response(disconnect_on_error=False))
                except TimeoutError:
                    await ask(connection, "PING")
        finally:
            await let_go(connection)

    def _heard(self, notice: Any) -> None:
        kind, *rest = notice  # of a PING there is an answer in between
        if kind != b"message" or self._sender.encode() in rest[1][:40]:
            return
        with contextlib.suppress(msgspec.MsgspecError, IndexError):  # another version may say more
            self._hear(news_of(msgspec.json.decode(rest[1], type=Message)))
