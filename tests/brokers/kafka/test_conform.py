"""Every check of transports on a broker of the Kafka protocol.

They run side by side: a group takes five seconds to begin there, and most checks wait for nothing else.
"""

import asyncio

import pytest

from forebay.conformance.transports import TRANSPORT_CHECKS
from tests.brokers.kafka.places import KafkaPlace

CHECK_MAX_S = 200.0


@pytest.mark.engines
@pytest.mark.timeout(240)
def test_kafka_meets_the_contract_of_transports(tansu):
    async def run():
        async with KafkaPlace(tansu.url()) as place:
            running = [asyncio.wait_for(check(place), CHECK_MAX_S) for check in TRANSPORT_CHECKS]
            return await asyncio.gather(*running, return_exceptions=True)

    found = zip(TRANSPORT_CHECKS, asyncio.run(run()))
    assert not {check.__name__: repr(error) for check, error in found if error is not None}
