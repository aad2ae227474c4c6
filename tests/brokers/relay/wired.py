"""check_wires: what a wire does to a relay and its message broker: one set for every broker that is reached by TCP.

Jobs go on by the store meanwhile, nothing is lost or runs twice, and delivery is noticed to be away and comes back by
itself. All run side by side, since they mostly wait: each on a wire, a store and names of its own.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from forebay.brokers.relay import Relay
from tests.brokers.relay.test_relay import Worker, clock, submit
from tests.wires import Wire

NOTICED_MAX_S = 20.0  # the pages say 10 s; the machine may be busy
BACK_MAX_S = 40.0  # the longest pause between two tries is 15 s
DONE_MAX_S = 30.0
TAKEN_MAX_S = 5.0
CUTS, CUT_EVERY_S = 10, 0.1


class Fault(NamedTuple):
    begin: Callable[[Wire], None]
    away: bool  # nothing can be delivered until the wire is mended; else it comes back by itself
    heard: bool  # those who use it must notice


def _slow(wire):
    wire.delay_s = 0.2


FAULTS = {
    "cut": Fault(Wire.cut, away=False, heard=False),
    "cut_again_and_again": Fault(lambda wire: _again_and_again(wire), away=False, heard=False),
    "silent": Fault(Wire.silence, away=True, heard=True),
    "silent_one_way": Fault(Wire.deafen, away=True, heard=True),
    "half_open": Fault(lambda wire: wire.silence(new=False), away=False, heard=False),
    "half_open_one_way": Fault(lambda wire: wire.deafen(new=False), away=False, heard=False),
    "slow": Fault(_slow, away=False, heard=False),
}


def _again_and_again(wire, left=CUTS):
    wire.cut()
    if left:
        asyncio.get_running_loop().call_later(CUT_EVERY_S, _again_and_again, wire, left - 1)


def check_wires(server, port, connect, faults=tuple(FAULTS)):
    """Fail with what does not hold. `connect(port, name)` opens a transport with names of its own."""

    async def run():
        checks = [_holds(name, FAULTS[name], server, port, connect) for name in faults]
        return await asyncio.gather(*checks, return_exceptions=True)

    found = dict(zip(faults, asyncio.run(run())))
    wrong = {name: repr(error) for name, error in found.items() if error is not None}
    assert not wrong, wrong


async def _holds(name, fault, server, port, connect):
    store = f"wired_{name}"
    await asyncio.to_thread(server.drop, store)
    async with Wire(port) as wire:
        relays, worker = [], None
        try:
            for _ in range(2):
                transport = await connect(wire.port, name.replace("_", "-"))
                relays.append(await Relay.open(await server.broker(store, clock), transport, clock=clock))
            worker = Worker(relays[1])
            await _goes_on(fault, wire, *relays, worker)
        finally:
            if worker is not None:
                await worker.stop()
            wire.heal()
            await asyncio.gather(*(relay.close() for relay in relays))


async def _goes_on(fault, wire, api, node, worker):
    both, jobs = (api, node), []

    def told():
        return (
            f"{len(worker.done)} of {len(jobs)} done, {wire.opened} connections, {api.told()}, {node.told()}"
        )

    async def taken(count):
        began = clock.now()
        jobs.extend(await submit(api, count))
        assert clock.now() - began < TAKEN_MAX_S, "a submission never waits for the broker"

    async def within(wait_max_s, what, condition):
        ends_at = clock.now() + wait_max_s
        while not condition():
            assert clock.now() < ends_at, f"not in {wait_max_s} s: {what}: {told()}"
            await asyncio.sleep(0.02)

    async def delivered(what):
        """Jobs reach the node through the broker."""
        before = node.told().events["received"]
        ends_at = clock.now() + BACK_MAX_S
        while node.told().events["received"] == before or not all(one.told().up for one in both):
            assert clock.now() < ends_at, f"not in {BACK_MAX_S} s: {what}: {told()}"
            await taken(1)
            await asyncio.sleep(0.2)

    await delivered("hints come")
    outages = [one.told().events["outages"] for one in both]
    fault.begin(wire)
    await taken(20)
    await within(DONE_MAX_S, "jobs go on by the store", lambda: len(worker.done) >= len(jobs))
    if fault.heard:
        heard = lambda: all(one.told().events["outages"] > n for one, n in zip(both, outages))
        await within(NOTICED_MAX_S, "both notice", heard)
    if fault.away:
        assert not any(one.told().up for one in both), told()
        await taken(20)
        await within(DONE_MAX_S, "jobs go on by the store", lambda: len(worker.done) >= len(jobs))
        wire.heal()
    await delivered("delivery comes back by itself")
    await within(DONE_MAX_S, "all are done", lambda: len(worker.done) >= len(jobs))
    assert sorted(worker.done) == sorted(worker.begun) == sorted(jobs), f"each once: {told()}"
