"""A wire to NATS that is cut, silent, half open or slow: see the set for all brokers."""

import pytest

from forebay.brokers.nats import NatsTransport
from tests.brokers.relay.wired import check_wires

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]


def test_jobs_go_on_whatever_the_wire_does_and_delivery_comes_back(server, store):
    def connect(port, name):
        return NatsTransport.open(server.url(f"wire-{name}", port=port))

    check_wires(store, server.port, connect)
