"""The server of a shared engine restarts, cuts connections: what was answered stays, what is unknown may be repeated."""

import asyncio

import pytest

from forebay.clock import SystemClock
from forebay.core.lifecycle import State
from forebay.errors import StoreUnavailableError
from tests.brokers.shared.faults import WAIT_MAX_S, a_job, everything, in_time, run_all

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_a_restart_of_the_server_loses_nothing_that_was_accepted(own, how):
    clock = SystemClock()

    async def run():
        broker = await own.broker("forebay", clock)
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
                        assert f"127.0.0.1:{own.port}" in str(error)
                        assert error.status == 503 and error.retry_after_s
                        unknown.append(job)
                        await asyncio.sleep(0.005)

            submitting = asyncio.ensure_future(submit())
            async with asyncio.timeout(WAIT_MAX_S):
                while len(accepted) < 20:
                    await asyncio.sleep(0.001)
                await asyncio.to_thread(own.halt, own.ENDS[how])
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
        broker = await own.broker("forebay", clock)
        try:
            for _ in range(3):
                job = a_job(broker, clock)
                await broker.enqueue([job], now=clock.now())
                await asyncio.to_thread(own.cut)
                assert (await broker.get(job.id, now=clock.now())).job == job
        finally:
            await broker.close()

    asyncio.run(run())


def test_a_caller_that_goes_away_takes_nothing_back(own):
    clock = SystemClock()

    async def run():
        broker = await own.broker("forebay", clock)
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
        broker = await own.broker("forebay", clock)
        try:
            jobs = [a_job(broker, clock) for _ in range(20)]

            async def cut():
                while True:
                    await asyncio.to_thread(own.cut)

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
