"""The transport in memory is a transport: the relay's tests stand on it."""

import asyncio
import itertools

import pytest

from forebay.brokers.relay import MemoryHub, MemoryTransport, RelayTrial
from forebay.brokers.relay import trial as module
from forebay.clock import SystemClock
from forebay.conformance.transports import TRANSPORT_CHECKS
from forebay.errors import DeliveryUnavailableError

_numbers = itertools.count()


class Place:
    def __init__(self):
        self.hub = MemoryHub()
        self.name = f"place{next(_numbers)}"

    async def open(self):
        return MemoryTransport(self.hub)

    def task(self, name="echo"):
        return f"{self.name}-{name}"


@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
def test_the_transport_in_memory_keeps_the_contract(check):
    asyncio.run(check(Place()))


@pytest.mark.parametrize("answered", [0, 1])
def test_a_broker_under_check_that_was_there_is_connected_to_again_and_one_that_never_was_is_not(
    monkeypatch, answered
):
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    hub, outcomes = MemoryHub(), [True] * answered + [False, False, True]

    async def connect():
        if not outcomes.pop(0):
            raise DeliveryUnavailableError("it stalls")
        return MemoryTransport(hub)

    async def run():
        trial = RelayTrial(None, connect, clock=SystemClock())
        for _ in range(answered):
            await trial._connected()
        if answered:
            assert await trial._connected()
        else:
            with pytest.raises(DeliveryUnavailableError, match="it stalls"):
                await trial._connected()

    asyncio.run(run())
    assert len(outcomes) == (0 if answered else 2)
