"""What tests of several engines on one store stand on; `server` is the real server that they share."""

import asyncio

from forebay.clock import SystemClock
from forebay.core import settle
from forebay.core.job import Job

WAIT_MAX_S = 40.0
clock = SystemClock()


def shared(server, name, body, count=3):
    """Run `body` with so many engines on one new store; what it counts and indexes must be true then."""

    async def run():
        server.drop(name)
        brokers = [await server.broker(name, clock) for _ in range(count)]
        try:
            async with asyncio.timeout(WAIT_MAX_S):
                await body(*brokers)
        finally:
            for broker in brokers:
                await broker.close()

    asyncio.run(run())
    server.check_counts(name)


def a_job(broker, **fields):
    now = clock.now()
    made = {"id": broker.new_id(now), "task": "echo", "payload": b"1", "created_at": now, "run_at": now}
    return Job(**{**made, **fields})


async def lease(broker, limit=10, worker="w", lease_s=30.0):
    return await broker.lease("echo", limit=limit, lease_s=lease_s, worker=worker, now=clock.now())


async def finish(broker, leases):
    done = [settle.complete(one, output=b"1", now=clock.now()) for one in leases]
    return await broker.commit(done, now=clock.now())


async def taken(broker, job):
    """Submit a job for which somebody waits; return the receipt and the leases."""
    asked = []

    def rung(task):
        asked.append(broker.lease(task, limit=10, lease_s=30.0, worker="w", now=clock.now()))

    unhang = broker.on_work(rung)
    try:
        (receipt,) = await broker.enqueue([job], now=clock.now())
        return receipt, await asked[0]
    finally:
        unhang()
