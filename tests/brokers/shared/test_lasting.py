"""What a server does behind its store lasts: no forged bell, and no odd error, ends it for good."""

import asyncio

import pytest

from forebay import loops
from forebay.brokers.postgres.connections import CONNECTIONS_MAX, KEPT
from forebay.clock import SystemClock
from forebay.core.job import Claim, Hold
from tests.brokers.shared.sharing import WAIT_MAX_S, a_job

pytestmark = [pytest.mark.engines, pytest.mark.timeout(120)]
clock = SystemClock()
RENEWED_MAX_S = 8.0
FORGED = [
    "",
    "not JSON",
    "[" * 5_000,
    '["x",[],[],false,false,[],[],false,' + "[" * 5_000,  # another version may say more
    '["x", 5]',
    '["x",[],[],false,false,["t"],[["j",0,99]]]',
    '["x",[],[],false,false,[],[["j",7,1]]]',
    '["x",["\\ud800"]]',
    '{"sender":"x"}',
]


def over_two(server, body):
    """Run `body` with two servers of one store; return what was told to the loop's handler."""
    told = []

    async def run():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        server.drop("lasting")
        brokers = [await server.broker("lasting", clock) for _ in range(2)]
        try:
            async with asyncio.timeout(WAIT_MAX_S):
                await body(*brokers)
        finally:
            for broker in brokers:
                await broker.close()

    asyncio.run(run())
    return told


async def heard(one, other):
    """Return once a bell of `one` rings in `other`."""
    rung = asyncio.Event()
    unhang = other.on_work(lambda task: rung.set())
    while not rung.is_set():
        await one.enqueue([a_job(one)], now=clock.now())
        await asyncio.sleep(0.05)
    unhang()


async def forge(broker, text):
    wire = broker._wire
    if hasattr(wire, "_publish"):
        await wire._publish([text])
    else:
        from forebay.brokers.postgres.wire import RING

        await wire._ask(RING, [wire._channel, [text]])


def test_a_bell_that_nobody_of_ours_rang_makes_nobody_deaf(server):
    async def body(one, other):
        await heard(one, other)
        listening = other._wire._heard_of
        for text in FORGED:
            await forge(one, text)
        while other._wire._heard_of < listening + len(FORGED):
            await asyncio.sleep(0.01)
        await heard(one, other)

    assert over_two(server, body) == []


def test_an_error_nobody_thought_of_is_told_and_the_store_is_looked_after_as_before(server, monkeypatch):
    monkeypatch.setattr(loops, "PAUSE_S", 0.01)

    async def body(one, other):
        looks, look = [], other._upkeep.look

        async def odd():
            looks.append(clock.now())
            if len(looks) == 1:
                raise RuntimeError("odd")
            await look()

        other._upkeep.look = odd
        other._upkeep.look_soon()
        while len(looks) < 3:
            other._upkeep.look_soon()
            await asyncio.sleep(0.01)

    (told,) = over_two(server, body)
    assert "look after the store" in told["message"] and str(told["exception"]) == "odd"


def test_an_error_nobody_thought_of_makes_nobody_deaf(server, monkeypatch):
    monkeypatch.setattr(loops, "PAUSE_S", 0.01)

    async def body(one, other):
        await heard(one, other)
        wire, hear, odd = other._wire, other._wire._hear, asyncio.Event()

        def broken(news):
            wire._hear = hear
            odd.set()
            raise RuntimeError("odd")

        wire._hear = broken
        await heard_nothing_yet(one, odd)
        await heard(one, other)

    (told,) = over_two(server, body)
    assert "hear others on the store" in told["message"]


async def heard_nothing_yet(one, odd):
    while not odd.is_set():
        await one.enqueue([a_job(one)], now=clock.now())
        await asyncio.sleep(0.05)


def test_f098_readers_who_hold_every_connection_keep_no_lease_from_being_renewed(server):
    async def body(one, _):
        pool = one._connections
        held = [await pool.take() for _ in range(CONNECTIONS_MAX - KEPT)]
        waiting = [asyncio.ensure_future(pool.take()) for _ in range(20)]
        async with asyncio.timeout(RENEWED_MAX_S):
            await one.enqueue([a_job(one)], now=clock.now())
            (lease,) = await one.lease("echo", limit=1, lease_s=30.0, worker="w", now=clock.now())
            claim = Claim(lease.job.id, lease.fence)
            assert await one.extend([claim], lease_s=30.0, now=clock.now()) == [Hold.HELD]
        for connection in held:
            await pool.give(connection, whole=True)
        for taking in waiting:
            await pool.give(await taking, whole=True)

    assert over_two(server, body) == []
