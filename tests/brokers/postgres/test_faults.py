"""The database goes away in mid-work: nothing accepted is lost, errors say why, and work goes on by itself."""

import asyncio
import signal

import pytest

from forebay.brokers.postgres import PostgresBroker
from forebay.clock import SystemClock
from forebay.core import settle
from forebay.core.job import Job, Query
from forebay.core.lifecycle import State
from forebay.errors import StoreUnavailableError
from tests.brokers.postgres.server import PostgresServer

pytestmark = pytest.mark.engines
WAIT_MAX_S = 40.0


@pytest.fixture
def own():
    """A server that a test may end."""
    one = PostgresServer()
    try:
        yield one.make().start()
    finally:
        one.stop()


def a_job(broker, clock, **fields):
    now = clock.now()
    made = {"id": broker.new_id(now), "task": "echo", "payload": b"1", "created_at": now, "run_at": now}
    return Job(**{**made, **fields})


async def in_time(verb, what):
    """Return what `verb` returns as soon as it does not raise StoreUnavailableError."""
    last = None
    async with asyncio.timeout(WAIT_MAX_S):
        while True:
            try:
                return await verb()
            except StoreUnavailableError as error:
                last = error
                await asyncio.sleep(0.02)
    raise AssertionError(f"not in time: {what}: {last}")


async def everything(broker, clock):
    found, after = [], None
    while True:
        page = await broker.find(Query(limit=500, after=after), now=clock.now())
        found += page.records
        after = page.next_after
        if after is None:
            return found


async def run_all(broker, clock):
    """Lease and finish what there is."""
    while True:
        leases = await in_time(
            lambda: broker.lease("echo", limit=50, lease_s=30.0, worker="w", now=clock.now()), "lease"
        )
        if not leases:
            return
        done = [settle.complete(lease, output=b"1", now=clock.now()) for lease in leases]
        await in_time(lambda done=done: broker.commit(done, now=clock.now()), "commit")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "crash"])
def test_a_restart_of_the_server_loses_nothing_that_was_accepted(own, how):
    clock = SystemClock()

    async def run():
        broker = await PostgresBroker.open(own.url(), clock=clock)
        accepted, unknown = set(), []
        try:
            down = asyncio.Event()

            async def submit():
                while not down.is_set() or len(unknown) < 3:
                    job = a_job(broker, clock)
                    try:
                        await broker.enqueue([job], now=clock.now())
                        accepted.add(job.id)
                    except StoreUnavailableError as error:
                        assert own.url().partition("?")[0].replace("postgres@", "") in str(error)
                        assert error.status == 503 and error.retry_after_s
                        unknown.append(job)
                        await asyncio.sleep(0.005)

            submitting = asyncio.ensure_future(submit())
            async with asyncio.timeout(WAIT_MAX_S):
                while len(accepted) < 20:
                    await asyncio.sleep(0.001)
                await asyncio.to_thread(own.halt, how)
                down.set()
                await submitting
            await asyncio.to_thread(own.start)
            for job in unknown:  # the same again: each is there once, whatever became of the first try
                await in_time(lambda job=job: broker.enqueue([job], now=clock.now()), "enqueue")
            await run_all(broker, clock)
            records = await in_time(lambda: everything(broker, clock), "find")
            assert {record.job.id for record in records} == accepted | {job.id for job in unknown}
            assert {record.standing.state for record in records} == {State.SUCCEEDED}
        finally:
            await broker.close()

    asyncio.run(run())


def test_a_connection_that_was_cut_while_idle_costs_no_error(own):
    clock = SystemClock()

    async def run():
        broker = await PostgresBroker.open(own.url(), clock=clock)
        try:
            for _ in range(3):
                job = a_job(broker, clock)
                await broker.enqueue([job], now=clock.now())
                await asyncio.to_thread(
                    own.sql,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'forebay'",
                )
                assert (await broker.get(job.id, now=clock.now())).job == job
        finally:
            await broker.close()

    asyncio.run(run())


def test_a_caller_that_goes_away_takes_nothing_back(own):
    clock = SystemClock()

    async def run():
        broker = await PostgresBroker.open(own.url(), clock=clock)
        try:
            jobs = [a_job(broker, clock) for _ in range(10)]
            calls = [asyncio.ensure_future(_awaited(broker.enqueue([job], now=clock.now()))) for job in jobs]
            await asyncio.sleep(0)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            marker = a_job(broker, clock)
            await broker.enqueue([marker], now=clock.now())  # what was taken in before it is done before it
            found = {record.job.id for record in await everything(broker, clock)}
            assert marker.id in found and found <= {job.id for job in [*jobs, marker]}
            assert broker.load_now("echo", now=clock.now()).open == len(found)
        finally:
            await broker.close()

    asyncio.run(run())


async def _awaited(verb):
    return await verb


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
