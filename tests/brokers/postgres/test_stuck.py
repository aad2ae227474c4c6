"""A process that stops inside a transaction."""

import asyncio

import pytest

from forebay.brokers.postgres import PostgresBroker
from forebay.clock import SystemClock
from tests.brokers.postgres.server import PostgresServer
from tests.brokers.shared.faults import a_job, in_time

pytestmark = pytest.mark.engines


@pytest.fixture
def own():
    """A server that a test may end."""
    one = PostgresServer()
    try:
        yield one.make().start()
    finally:
        one.stop()


def test_a_process_that_stops_in_mid_transaction_holds_nobody_up_for_ever(own, monkeypatch):
    monkeypatch.setattr("forebay.brokers.postgres.connections.IDLE_IN_TRANSACTION_MAX_MS", 300)
    clock = SystemClock()

    async def run():
        stuck = await PostgresBroker.open(own.url(), clock=clock)
        broker = await PostgresBroker.open(own.url(), clock=clock)
        try:
            job = a_job(broker, clock)
            await broker.enqueue([job], now=clock.now())
            held = await stuck._connections.take()
            await held.execute("BEGIN")
            await held.execute("SELECT 1 FROM jobs FOR UPDATE")
            assert await in_time(lambda: broker.cancel([job.id], now=clock.now()), "cancel")
            await stuck._connections.give(held, whole=False)
        finally:
            await broker.close()
            await stuck.close()

    asyncio.run(run())
