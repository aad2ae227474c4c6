"""SqliteTrial: the engine as the checks of the contract get it: each store in a directory of its own."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from forebay.brokers.sqlite.engine import SqliteBroker
from forebay.errors import ConfigError
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock


class SqliteTrial:
    """Makes stores below a new directory inside `root`. A crash is a copy of a store's files as they are."""

    capabilities = SqliteBroker.capabilities

    def __init__(
        self, root: Path, *, clock_at: Callable[[float], Clock], at: float, retention_s: float
    ) -> None:
        self._root = root
        self._clock_at = clock_at
        self._at = at
        self._retention_s = retention_s
        self._place: Path | None = None
        self._opened = 0
        self._directories: dict[int, Path] = {}

    async def open(self) -> Broker:
        """Return the engine on a new store. Raises ConfigError when there is no room for it."""
        return await self._open(self._next(), self._at)

    async def reopen(self, broker: Broker, *, crash: bool, now: float) -> Broker:
        """Return the engine on the store of `broker`, or on what a crash leaves of it."""
        directory = self._directories[id(broker)]
        if crash:
            left = self._next()
            await asyncio.to_thread(_copy, directory, left)
            directory = left
        await broker.close()  # after the copy: it leaves nothing behind in this process
        return await self._open(directory, now)

    async def remove(self) -> None:
        """Remove everything that was made."""
        if self._place is not None:
            await asyncio.to_thread(shutil.rmtree, self._place)

    async def _open(self, directory: Path, now: float) -> Broker:
        broker = await SqliteBroker.open(directory, clock=self._clock_at(now), retention_s=self._retention_s)
        self._directories[id(broker)] = directory
        return broker

    def _next(self) -> Path:
        if self._place is None:
            try:
                os.makedirs(self._root, mode=0o700, exist_ok=True)
                self._place = Path(tempfile.mkdtemp(prefix="conform-", dir=self._root))
            except OSError as error:
                raise ConfigError(f"{self._root}: {error.strerror}") from None
        self._opened += 1
        return self._place / f"store-{self._opened}"


def _copy(directory: Path, to: Path) -> None:
    to.mkdir(mode=0o700)
    for file in directory.iterdir():
        if not file.name.endswith(("-shm", "lock")):  # what a new process would not trust
            shutil.copy(file, to / file.name)
