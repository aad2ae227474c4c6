"""What tests of one engine whose server ends or is cut off stand on."""

import asyncio

from forebay.core import settle
from forebay.core.job import Job, Query
from forebay.errors import StoreUnavailableError

WAIT_MAX_S = 40.0


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
