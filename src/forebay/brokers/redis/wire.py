"""Wire: how servers on one store tell each other what changed: PUBLISH and SUBSCRIBE, a doorbell and no more.

Whatever is lost here is found by looking: nodes poll, waiters look again, and the counts are read anew each
second. A process that is alone on its store tells nobody: whoever joins says so first.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Any, Final

from forebay.brokers.redis.address import redis_module
from forebay.brokers.redis.connections import Connections, ask, gone, let_go
from forebay.brokers.shared.messages import messages_of, news_in
from forebay.brokers.shared.news import News
from forebay.errors import ForebayError
from forebay.loops import goes_on

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
        self._others = True  # somebody may hear what is told
        self._heard_of = 0  # messages of others, and times when nobody was heard
        self._echoed = False  # what is told here comes back: of those who hear it, one is this process
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        self._tasks = [
            asyncio.ensure_future(goes_on(self._send, "tell others on the store")),
            asyncio.ensure_future(goes_on(self._listen, "hear others on the store")),
        ]

    def tell(self, news: News) -> None:
        """Tell others, soon. What comes together goes together."""
        if self._others and (news.work or news.cancels or news.changes or news.owed or news.deadly):
            self._pending.add_told(news)
            self._told.set()

    async def close(self) -> None:
        """Stop; twice is harmless."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _send(self) -> None:
        await self._told.wait()
        self._told.clear()
        news, self._pending = self._pending, News()
        with contextlib.suppress(ForebayError, redis_module().exceptions.RedisError, *gone()):
            heard_of = self._heard_of
            # Where there is nothing to tell, it tells that we are here. Of two that begin at once one at
            # least finds the other: its message, or that two heard this one.
            hearers = await self._publish(messages_of(news, self._sender))
            if self._echoed and hearers == 1 and self._heard_of == heard_of:
                self._others = False

    async def _publish(self, texts: list[str]) -> int:
        """Send messages; return how many heard the last one."""
        connection = await self._connections.take(kept=True)
        whole, hearers = False, 0
        try:
            for text in texts:
                hearers = await ask(connection, "PUBLISH", self._channel, text)
            whole = True
        finally:
            await self._connections.give(connection, whole=whole)
        return hearers

    async def _listen(self) -> None:
        with contextlib.suppress(redis_module().exceptions.RedisError, *gone()):
            await self._listen_once()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LISTEN_AGAIN_S):
                await asyncio.Event().wait()

    async def _listen_once(self) -> None:
        connection = await self._connections.connect()
        try:
            # The servers of a cluster count those alone who hear at the one that is asked.
            clustered = b"cluster_enabled:0" not in await ask(connection, "INFO", "cluster")
            await ask(connection, "SUBSCRIBE", self._channel)
            self._others = True
            self._told.set()
            while True:
                try:
                    async with asyncio.timeout(LISTEN_EACH_S):
                        notice = await connection.read_response(disconnect_on_error=False)
                        self._heard(notice, clustered=clustered)
                except TimeoutError:
                    await ask(connection, "PING")
        finally:
            self._others, self._echoed = True, False  # who joins now is not heard
            self._heard_of += 1
            await let_go(connection)

    def _heard(self, notice: Any, *, clustered: bool) -> None:
        kind, *rest = notice  # of a PING there is an answer in between
        if kind != b"message":
            return
        if self._sender.encode() in rest[1][:40]:
            self._echoed = not clustered
            return
        self._heard_of += 1
        self._others = True
        if (news := news_in(rest[1])) is not None:
            self._hear(news)
