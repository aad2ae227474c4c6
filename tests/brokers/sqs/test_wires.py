"""A wire to SQS that is cut, silent, half open or slow: see the set for all brokers."""

import pytest

from forebay.brokers.relay import receiver
from forebay.brokers.sqs import SqsTransport
from forebay.clock import SystemClock
from tests.brokers.relay.wired import check_wires

pytestmark = [pytest.mark.engines, pytest.mark.timeout(240)]


def test_jobs_go_on_whatever_the_wire_does_and_delivery_comes_back(moto, redis, monkeypatch):
    monkeypatch.setattr(
        receiver, "WAIT_S", 2.0
    )  # a long poll in the wire's silence is as long as it was to be

    def connect(port, name):
        url = f"sqs://eu-central-1/w{name.replace('-', '')}?endpoint=http://127.0.0.1:{port}"
        return SqsTransport.open(url, clock=SystemClock())

    check_wires(redis, moto.port, connect)
