"""A relay is an engine: every check of the contract holds with a store behind it and a broker before it."""

import asyncio

import pytest

from forebay.brokers.relay import MemoryHub, MemoryTransport, RelayTrial
from forebay.clock import SystemClock
from forebay.conformance import CHECKS, run_checks
from tests.brokers.relay.behind import Behind, check_report

pytestmark = pytest.mark.engines
PARTS = 4


@pytest.mark.timeout(300)
@pytest.mark.parametrize("server", ["redis"], indirect=True)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_check_of_the_contract_holds_behind_a_relay(server, part):
    hub = MemoryHub()

    async def connect():
        return MemoryTransport(hub)

    async def run():
        relay = RelayTrial(Behind(server), connect, clock=SystemClock())
        try:
            return await run_checks(relay.open, reopen=relay.reopen, checks=CHECKS[part::PARTS])
        finally:
            await relay.remove()

    check_report(asyncio.run(run()))
