"""Depths: how full each queue is, for a scrape that may not wait: asked at once, or read each second."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final

from forebay.core.job import Depth
from forebay.errors import ForebayError
from forebay.loops import goes_on
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock

READ_S: Final = 1.0


class Depths:
    """The depths of an engine that knows them without IO; of any other what was read last."""

    def __init__(self, broker: Broker, tasks: Iterable[str], clock: Clock) -> None:
        self._broker = broker
        self._tasks = tuple(tasks)
        self._clock = clock
        self._read: dict[str, Depth] = {}
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read, where nothing else will do."""
        if not all(name in self._at_once() for name in self._tasks):
            self._loop = asyncio.ensure_future(goes_on(self._run, "read the depths of queues"))

    async def close(self) -> None:
        """Stop; twice is harmless."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
            self._loop = None

    def seen(self) -> dict[str, Depth]:
        """Return how full each task's queue is; a task that was never read is left out."""
        return self._read | self._at_once()

    async def read(self) -> None:
        """Read every depth. What cannot be read stays as it was read last."""
        for name in self._tasks:
            with contextlib.suppress(ForebayError):
                self._read[name] = await self._broker.depth(name, now=self._clock.now())

    def _at_once(self) -> dict[str, Depth]:
        now = self._clock.now()
        depths = {name: self._broker.depth_now(name, now=now) for name in self._tasks}
        return {name: depth for name, depth in depths.items() if depth is not None}

    async def _run(self) -> None:
        await self.read()
        await self._clock.sleep(READ_S)
