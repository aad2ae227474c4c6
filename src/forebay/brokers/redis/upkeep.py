"""Upkeep: a look at what other processes did, each second."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from forebay.brokers.redis.deadly import Deadly
from forebay.brokers.redis.gauge import CountsGauge
from forebay.brokers.redis.outbox import RedisOutbox
from forebay.brokers.redis.store import Tx, line_of, pairs
from forebay.brokers.shared.committer import Committer
from forebay.brokers.shared.news import News
from forebay.errors import ForebayError
from forebay.loops import goes_on

LOOK_S: Final = 1.0


class Upkeep:
    """One loop for as long as the store is open."""

    def __init__(
        self,
        committer: Committer,
        gauge: CountsGauge,
        deadly: Deadly,
        outbox: RedisOutbox,
        ring: Callable[[News], None],
    ) -> None:
        self._committer = committer
        self._gauge = gauge
        self._deadly = deadly
        self._outbox = outbox
        self._ring = ring
        self._soon = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.ensure_future(goes_on(self._run, "look after the store"))

    def look_soon(self) -> None:
        """Look at once: somebody said that there is something to see."""
        self._soon.set()

    async def close(self) -> None:
        """Stop; twice is harmless."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def look(self) -> None:
        """See what is in the store. In turn with this process's own writes, so that nothing older than them
        replaces what they left in memory."""
        await self._committer.alone(self._look, 0.0)
        if self._outbox.looked():
            news = News()
            news.owed = True
            self._ring(news)

    async def _look(self, tx: Tx) -> None:
        tasks, taps, version, deadly = await tx.run("look", dv=self._deadly.version)
        counts: list[Any] = []
        for task, jobs, sizes in tasks:
            size_of = dict(pairs(sizes))
            counts += [
                (task.decode(), *line_of(field), int(count), int(size_of.get(field, 0)))
                for field, count in pairs(jobs)
            ]
        turned = [(task.decode(), how[:1] == b"1", how[1:2] == b"1") for task, how in pairs(taps)]
        self._gauge.looked(counts, turned)
        if deadly is not None:
            self._deadly.load(version.decode(), deadly)

    async def _run(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._soon.wait()
        self._soon.clear()
        with contextlib.suppress(ForebayError):
            await self.look()
