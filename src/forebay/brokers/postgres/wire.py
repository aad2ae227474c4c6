"""Wire: how servers on one store tell each other what changed: NOTIFY and LISTEN, a doorbell and no more.

Whatever is lost here is found by looking: nodes poll, waiters look again, and the counts are read anew each
second. A process that is alone on its store tells nobody: whoever joins says so first.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Any, Final

from forebay.brokers.postgres.address import psycopg_module
from forebay.brokers.postgres.connections import Connections
from forebay.brokers.postgres.intake import served_number
from forebay.brokers.shared.messages import messages_of, news_in
from forebay.brokers.shared.news import News
from forebay.errors import ForebayError
from forebay.loops import goes_on

LISTEN_AGAIN_S: Final = 1.0  # after a listener's connection went away
LISTEN_EACH_S: Final = 30.0  # one wait for messages: a closed connection is noticed by then at the latest

# What is told is on the disk already, and a server that fails takes its listeners with it: no commit of a job
# should wait for the sync of a bell.
RING: Final = (
    "SELECT set_config('synchronous_commit', 'off', true), count(pg_notify(%s, t))"
    " FROM unnest(%s::text[]) AS u(t)"
)
# Every process that serves a store holds one lock together with the others.
SELECT_SERVERS: Final = (
    "SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND ((classid::int8 << 32) | objid::int8) = %s"
)


def channel_of(schema: str) -> str:
    """Return the channel on which the processes of a store hear each other."""
    return f"forebay_{schema}"


class Wire:
    """Sends what is told here, and hears what others tell."""

    def __init__(self, connections: Connections, hear: Callable[[News], None]) -> None:
        self._connections = connections
        self._hear = hear
        self._channel = channel_of(connections.address.schema)
        self._served = served_number(connections.address.schema)
        self._sender = secrets.token_hex(8)
        self._pending = News()
        self._told = asyncio.Event()
        self._others = True  # somebody may hear what is told
        self._counts = False  # it is time to see whether that is so
        self._heard_of = 0  # messages of others, and times when nobody was heard
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
        with contextlib.suppress(ForebayError, psycopg_module().Error):
            heard_of = self._heard_of
            # Where there is nothing to tell, it tells that we are here. Of two that begin at once one at
            # least finds the other: its message, or its lock.
            await self._ask(RING, [self._channel, messages_of(news, self._sender)])
            if self._counts:
                ((servers,),) = await self._ask(SELECT_SERVERS, [self._served])
                self._counts = False
                self._others = servers > 1 or self._heard_of > heard_of

    async def _ask(self, query: str, params: list[Any]) -> list[Any]:
        connection = await self._connections.take(kept=True)
        whole = False
        try:
            cursor = await connection.execute(query, params)
            rows: list[Any] = await cursor.fetchall()
            whole = True
        finally:
            await self._connections.give(connection, whole=whole)
        return rows

    async def _listen(self) -> None:
        with contextlib.suppress(psycopg_module().Error, TimeoutError, OSError):
            await self._listen_once()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LISTEN_AGAIN_S):
                await asyncio.Event().wait()

    async def _listen_once(self) -> None:
        connection = await self._connections.connect()
        try:
            await connection.execute(f'LISTEN "{self._channel}"', prepare=False)
            # For who wants to move the jobs elsewhere: nobody ever takes it alone, so it is never waited for.
            await connection.execute(f"SELECT pg_try_advisory_lock_shared({self._served})", prepare=False)
            while not connection.closed:
                self._counts = True
                self._told.set()
                async for notice in connection.notifies(timeout=LISTEN_EACH_S):
                    self._heard(notice)
        finally:
            self._others = True  # who joins now is not heard
            self._heard_of += 1
            await connection.close()

    def _heard(self, notice: Any) -> None:
        if self._sender in notice.payload[:40]:
            return
        self._heard_of += 1
        self._others = True
        if (news := news_in(notice.payload.encode())) is not None:
            self._hear(news)
