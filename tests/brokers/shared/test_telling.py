"""A process that is alone on its store tells nobody of what it does: whoever joins says so first."""

import asyncio
import contextlib

import pytest

from forebay.errors import StoreUnavailableError
from tests.brokers.shared.sharing import WAIT_MAX_S, a_job, clock, shared

pytestmark = pytest.mark.engines


async def alone(broker):
    """Return when a broker takes it that nobody hears what it tells."""
    async with asyncio.timeout(WAIT_MAX_S):
        while broker._wire._others:
            with contextlib.suppress(StoreUnavailableError):  # its connection was cut
                await broker.enqueue([a_job(broker)], now=clock.now())
            await asyncio.sleep(0.01)


def test_a_process_that_is_alone_tells_nobody_until_another_joins(server):
    async def body(first):
        await alone(first)
        async with server.ear("nobody_hears") as said:
            for _ in range(5):
                await first.enqueue([a_job(first)], now=clock.now())
            assert await said() == []
        second = await server.broker("nobody_hears", clock)
        try:
            rung = asyncio.Event()
            second.on_work(lambda task: rung.set())
            async with asyncio.timeout(WAIT_MAX_S):
                while not rung.is_set():  # nobody is heard before it listens
                    await first.enqueue([a_job(first)], now=clock.now())
                    await asyncio.sleep(0.05)
        finally:
            await second.close()

    shared(server, "nobody_hears", body, count=1)


def test_of_two_each_hears_what_the_other_does_for_as_long_as_both_are_there(server):
    async def body(first, second):
        for one, other in ((first, second), (second, first)) * 3:
            rung = asyncio.Event()
            unhang = other.on_work(lambda task, rung=rung: rung.set())
            async with asyncio.timeout(WAIT_MAX_S):
                while not rung.is_set():
                    await one.enqueue([a_job(one)], now=clock.now())
                    await asyncio.sleep(0.05)
            unhang()
            assert one._wire._others

    shared(server, "both_hear", body, count=2)


def test_who_cannot_hear_takes_it_that_others_are_there(server):
    async def body(broker):
        await alone(broker)
        await asyncio.to_thread(server.cut)
        async with asyncio.timeout(WAIT_MAX_S):
            while not broker._wire._others:
                await asyncio.sleep(0.01)
        await alone(broker)  # it listens again, and sees that nobody came

    shared(server, "deaf", body, count=1)
