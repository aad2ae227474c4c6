"""Every check of transports on Pub/Sub: its emulator where there is one, and a fake anywhere."""

import asyncio

import pytest

from forebay.conformance.transports import TRANSPORT_CHECKS
from tests.brokers.pubsub.places import PubSubPlace

CHECK_MAX_S = 150.0


@pytest.mark.engines
@pytest.mark.timeout(240)
def test_pubsub_meets_the_contract_of_transports(service):
    async def run():
        async with PubSubPlace(service) as place:
            running = [asyncio.wait_for(check(place), CHECK_MAX_S) for check in TRANSPORT_CHECKS]
            return await asyncio.gather(*running, return_exceptions=True)

    found = zip(TRANSPORT_CHECKS, asyncio.run(run()))
    assert not {check.__name__: repr(error) for check, error in found if error is not None}
