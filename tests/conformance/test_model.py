"""Random calls on an engine and on the Ledger: every answer and every record is the same."""

import asyncio

import pytest

from forebay.brokers.memory import MemoryBroker
from forebay.brokers.sqlite import SqliteBroker
from tests.conformance.drill import RETENTION_S, T0, Drill
from tests.conformance.engines import Sqlite, StandingClock


class ShortSqlite(Sqlite):
    """SQLite with the short retention of the drill."""

    async def open(self, directory=None, now=T0):
        if directory is None:
            self.opened += 1
            directory = self.root / f"store-{self.opened}"
        broker = await SqliteBroker.open(directory, clock=StandingClock(now), retention_s=RETENTION_S)
        self.places[id(broker)] = directory
        return broker


async def on_memory(seed, steps):
    await Drill(MemoryBroker(retention_s=RETENTION_S), seed, steps=steps).run()


async def on_sqlite(seed, steps, root):
    way = ShortSqlite(root)
    await Drill(await way.open(), seed, reopen=way.reopen, steps=steps).run()


@pytest.mark.parametrize("seed", range(6))
def test_memory_answers_as_the_ledger_and_both_as_their_records_say(seed):
    asyncio.run(on_memory(seed, 250))


@pytest.mark.parametrize("seed", range(3))
def test_sqlite_answers_as_the_ledger_through_closes_and_crashes(seed, tmp_path):
    asyncio.run(on_sqlite(seed, 200, tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_memory_answers_as_the_ledger_for_long():
    for seed in range(1_000, 1_150):
        asyncio.run(on_memory(seed, 400))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sqlite_answers_as_the_ledger_for_long(tmp_path):
    for seed in range(2_000, 2_060):
        root = tmp_path / str(seed)
        root.mkdir()
        asyncio.run(on_sqlite(seed, 400, root))


def test_the_same_seed_gives_the_same_drill():
    drills = [Drill(MemoryBroker(retention_s=RETENTION_S), 7, steps=120) for _ in range(2)]
    for drill in drills:
        asyncio.run(drill.run())
    assert drills[0].done == drills[1].done
    assert len({line.split()[1] for line in drills[0].done}) >= 9  # verbs met
