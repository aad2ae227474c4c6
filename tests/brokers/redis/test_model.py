"""Random calls on the engine and on the Ledger: every answer and every record is the same."""

import asyncio

import pytest

from forebay.brokers.redis import RedisBroker
from tests.brokers.redis.engines import StandingClock
from tests.conformance.drill import RETENTION_S, Drill

pytestmark = pytest.mark.engines


async def drill(url, seed, steps):
    broker = await RedisBroker.open(url, clock=StandingClock(), retention_s=RETENTION_S, given_time=True)
    try:
        await Drill(broker, seed, steps=steps).run()
    finally:
        await broker.close()


@pytest.mark.parametrize("seed", range(3))
def test_the_engine_answers_as_the_ledger(server, seed):
    asyncio.run(drill(server.url(f"drill_{seed}"), seed, 150))
