"""The database goes away in mid-work: nothing accepted is lost, errors say why, and work goes on by itself."""

import asyncio
import signal

import pytest

from forebay.brokers.redis import RedisBroker
from forebay.clock import SystemClock
from forebay.core import settle
from forebay.core.job import Job, Query
from forebay.core.lifecycle import State
from forebay.errors import StoreFullError, StoreUnavailableError
from tests.brokers.redis.server import RedisServer
from tests.ports import free_port
from tests.waiting import until

pytestmark = pytest.mark.engines
WAIT_MAX_S = 40.0


@pytest.fixture
def own():
    """A server that a test may end."""
    one = RedisServer()
    try:
        yield one.start()
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


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stop", "crash"])
def test_a_restart_of_the_server_loses_nothing_that_was_accepted(own, how):
    clock = SystemClock()

    async def run():
        broker = await RedisBroker.open(own.url(), clock=clock)
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
                        assert own.url().partition("?")[0] in str(error)
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
        broker = await RedisBroker.open(own.url(), clock=clock)
        try:
            for _ in range(3):
                job = a_job(broker, clock)
                await broker.enqueue([job], now=clock.now())
                await asyncio.to_thread(own.ask, "CLIENT", "KILL", "TYPE", "normal")
                assert (await broker.get(job.id, now=clock.now())).job == job
        finally:
            await broker.close()

    asyncio.run(run())


def test_a_caller_that_goes_away_takes_nothing_back(own):
    clock = SystemClock()

    async def run():
        broker = await RedisBroker.open(own.url(), clock=clock)
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


def test_a_connection_that_is_cut_in_mid_call_is_an_error_and_the_next_call_goes_on(own):
    clock = SystemClock()

    async def run():
        broker = await RedisBroker.open(own.url(), clock=clock)
        try:
            jobs = [a_job(broker, clock) for _ in range(20)]

            async def cut():
                while True:
                    await asyncio.to_thread(own.ask, "CLIENT", "KILL", "TYPE", "normal")

            cutting = asyncio.ensure_future(cut())
            try:
                for job in jobs:
                    await in_time(lambda job=job: broker.enqueue([job], now=clock.now()), "enqueue")
            finally:
                cutting.cancel()
                await asyncio.gather(cutting, return_exceptions=True)
            found = await in_time(lambda: everything(broker, clock), "find")
            assert {record.job.id for record in found} == {job.id for job in jobs}
        finally:
            await broker.close()

    asyncio.run(run())


def test_a_full_memory_refuses_what_is_new_and_lets_what_runs_end(own):
    clock = SystemClock()

    async def run():
        broker = await RedisBroker.open(own.url(), clock=clock)
        try:
            await broker.enqueue([a_job(broker, clock) for _ in range(5)], now=clock.now())
            leases = await broker.lease("echo", limit=3, lease_s=60.0, worker="w", now=clock.now())
            await asyncio.to_thread(own.ask, "CONFIG", "SET", "maxmemory", "1")
            with pytest.raises(StoreFullError):
                await broker.enqueue([a_job(broker, clock)], now=clock.now())
            done = [settle.complete(lease, output=b"1", now=clock.now()) for lease in leases]
            assert await broker.commit(done, now=clock.now()) == [True] * 3
            more = await broker.lease("echo", limit=3, lease_s=60.0, worker="w", now=clock.now())
            assert len(more) == 2
            assert await broker.purge([lease.job.id for lease in leases], limit=3, now=clock.now()) == 3
            await asyncio.to_thread(own.ask, "CONFIG", "SET", "maxmemory", "0")
            await broker.enqueue([a_job(broker, clock)], now=clock.now())
        finally:
            await broker.close()

    asyncio.run(run())


def test_a_server_that_forgot_the_scripts_is_told_them_again(own):
    clock = SystemClock()

    async def run():
        broker = await RedisBroker.open(own.url(), clock=clock)
        try:
            job = a_job(broker, clock)
            await broker.enqueue([job], now=clock.now())
            await asyncio.to_thread(own.ask, "SCRIPT", "FLUSH")
            await broker.enqueue([a_job(broker, clock)], now=clock.now())
            assert (await broker.get(job.id, now=clock.now())).job == job
        finally:
            await broker.close()

    asyncio.run(run())


def test_a_node_of_a_cluster_that_has_the_slot_keeps_a_store():
    one, clock = RedisServer(), SystemClock()

    async def run():
        broker = await RedisBroker.open(one.url(), clock=clock)
        try:
            await broker.enqueue([a_job(broker, clock, ordering_key="k") for _ in range(3)], now=clock.now())
            await run_all(broker, clock)
            records = await everything(broker, clock)
            assert [record.standing.state for record in records] == [State.SUCCEEDED] * 3
        finally:
            await broker.close()

    try:
        one.start(**{"cluster-enabled": "yes", "cluster-port": free_port()})
        one.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        until(lambda: b"cluster_state:ok" in one.ask("CLUSTER", "INFO"), WAIT_MAX_S, "the cluster is whole")
        asyncio.run(run())
    finally:
        one.stop()
