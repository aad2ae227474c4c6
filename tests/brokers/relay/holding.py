"""check_long_jobs: jobs that run longer than a message broker lets a message be held, or a reader be silent (F006)."""

import asyncio

from forebay.brokers.relay import Relay
from tests.brokers.relay.test_relay import Worker, clock, submit, until

JOBS = 3
ALL_MAX_S = 90.0


def check_long_jobs(server, connect, run_s, *, joined=lambda: None):
    """Run three jobs of `run_s` on two nodes; fail unless each runs once, its hint comes once, and no broker calls
    a node gone. `connect()` opens a transport; what `joined()` returns must not change once both receive. They
    are submitted where nobody waits for them: each needs its hint then."""

    async def run():
        server.drop("holding")
        relays = []
        try:
            for _ in range(3):
                relays.append(
                    await Relay.open(await server.broker("holding", clock), await connect(), clock=clock)
                )
            async with asyncio.timeout(ALL_MAX_S):
                await _each_once(relays, run_s, joined)
        finally:
            for relay in relays:
                await relay.close()

    asyncio.run(run())


async def _each_once(relays, run_s, joined):
    def total(event):
        return sum(relay.told().events[event] for relay in relays)

    workers = [Worker(relay, limit=2) for relay in relays[1:]]
    short = await submit(relays[0], 2 * JOBS)
    await until(lambda: total("acknowledged") == len(short), lambda: [relay.told() for relay in relays])
    for worker in workers:
        worker.run_s = run_s
    before, place = total("received"), joined()
    jobs = [*short, *await submit(relays[0], JOBS)]
    await until(
        lambda: sum(len(one.done) for one in workers) == len(jobs), lambda: [one.begun for one in workers]
    )
    begun = [job for worker in workers for job in worker.begun]
    assert sorted(begun) == sorted(jobs), "each once"
    await until(lambda: total("acknowledged") == len(jobs), lambda: [relay.told() for relay in relays])
    await until_empty(relays[0])
    assert total("received") - before == JOBS, [relay.told() for relay in relays]
    assert joined() == place and not total("outages"), [relay.told() for relay in relays]
    for worker in workers:
        await worker.stop()


async def until_empty(relay):
    """Wait until the broker holds no hint."""
    ends_at = clock.now() + ALL_MAX_S
    while await relay._link.depth("echo"):
        assert clock.now() < ends_at, relay.told()
        await asyncio.sleep(0.1)
