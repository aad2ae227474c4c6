"""Readers beside writers: a look is served between two flushes, however steadily new ones come."""

import asyncio
from pathlib import Path

from forebay.brokers.sqlite import SqliteBroker
from forebay.clock import SystemClock
from forebay.core.job import Job, Query

CLOCK = SystemClock()
WRITERS = 16
LOOKS = 40
FLUSHES_MAX = 3  # that may pass while one look waits


def a_job(broker: SqliteBroker) -> Job:
    now = CLOCK.now()
    return Job(broker.new_id(now), "t", b"{}", now, now)


def test_a_look_waits_for_one_flush_at_most_under_a_steady_stream_of_writes(tmp_path: Path) -> None:
    async def go() -> list[int]:
        broker = await SqliteBroker.open(tmp_path / "data", clock=CLOCK)
        first = a_job(broker)
        await broker.enqueue([first], now=CLOCK.now())
        writing = True

        async def write() -> None:
            while writing:
                await broker.enqueue([a_job(broker)], now=CLOCK.now())

        writers = [asyncio.ensure_future(write()) for _ in range(WRITERS)]
        waited: list[int] = []
        for look in range(LOOKS):
            before = broker.stats()["flushes"]
            if look % 2:
                assert await broker.get(first.id, now=CLOCK.now()) is not None
            else:
                assert (await broker.find(Query(limit=1), now=CLOCK.now())).records
            waited.append(int(broker.stats()["flushes"] - before))
            await asyncio.sleep(0.002)
        writing = False
        await asyncio.gather(*writers)
        await broker.close()
        return waited

    waited = asyncio.run(asyncio.wait_for(go(), 30))
    assert max(waited) <= FLUSHES_MAX, waited
