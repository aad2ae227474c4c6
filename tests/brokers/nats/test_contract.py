"""Every check of the contract of a transport, on real servers, new and old."""

import asyncio

import pytest

from forebay.conformance.transports import TRANSPORT_CHECKS
from tests.brokers.nats.place import Place

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
def test_the_contract_holds(each, check):
    async def run():
        place = Place(each)
        try:
            await check(place)
        finally:
            await place.close()

    asyncio.run(run())
    assert not [name for name in each.streams() if name.startswith("t")]
