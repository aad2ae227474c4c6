"""SQS keeps the contract of transports, behind a gate that is as strict as Amazon's."""

import asyncio
import itertools

import pytest

from forebay.brokers.sqs import SqsTransport
from forebay.clock import SystemClock
from forebay.conformance.transports import TRANSPORT_CHECKS

pytestmark = pytest.mark.engines


class Place:
    def __init__(self, gate, prefix):
        self.url = gate.url(prefix)
        self.numbers = itertools.count()

    async def open(self):
        return await SqsTransport.open(self.url, clock=SystemClock())

    def task(self, name="echo"):
        return f"{name}-{next(self.numbers)}"


@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
def test_sqs_keeps_the_contract_of_transports(check, gate, prefix):
    gate.deleted_s = 0.0  # its own test waits
    asyncio.run(check(Place(gate, prefix)))
