"""The engines that the contract is run against, each with its way to a fresh store and back to an old one."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from forebay.brokers.memory import MemoryBroker
from forebay.brokers.sqlite import SqliteBroker
from forebay.conformance.fixtures import RETENTION_S, T0


class StandingClock:
    """A clock that moves only when told."""

    def __init__(self, at=T0):
        self.at = at

    def now(self):
        return self.at

    def random(self):
        return 0.5

    async def sleep(self, seconds):
        raise AssertionError("an engine under check must not sleep")


class Memory:
    """The Ledger behind `async def`."""

    reopen = None

    def __init__(self, root):
        pass

    async def open(self):
        return MemoryBroker(retention_s=RETENTION_S)


@dataclass
class Sqlite:
    """The embedded engine. A crash is a copy of its files as they are, without a close."""

    root: Path
    opened: int = 0
    places: dict = field(default_factory=dict)
    left_behind: list = field(default_factory=list)

    async def open(self, directory=None, now=T0):
        if directory is None:
            self.opened += 1
            directory = self.root / f"store-{self.opened}"
        broker = await SqliteBroker.open(directory, clock=StandingClock(now), retention_s=RETENTION_S)
        self.places[id(broker)] = directory
        return broker

    async def reopen(self, broker, *, crash, now):
        directory = self.places[id(broker)]
        if crash:
            self.opened += 1
            copy = self.root / f"store-{self.opened}"
            copy.mkdir(mode=0o700)
            for file in directory.iterdir():
                if not file.name.endswith(("-shm", ".lock", "lock")):  # what a new process would not trust
                    shutil.copy(file, copy / file.name)
            directory = copy
        await broker.close()  # after the copy: it leaves nothing behind in this process
        return await self.open(directory, now)


ENGINES = {"memory": Memory, "sqlite": Sqlite}
EXPECTED_SKIPS = {"memory": {"durable"}, "sqlite": set()}
