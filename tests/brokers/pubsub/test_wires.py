"""A wire to Pub/Sub that is cut, silent, half open or slow: see the set for all brokers."""

import pytest

from forebay.brokers.pubsub import PubSubTransport, asking
from tests.brokers.relay.wired import check_wires

pytestmark = [pytest.mark.engines, pytest.mark.timeout(240)]


@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_jobs_go_on_whatever_the_wire_does_and_delivery_comes_back(server, fake, monkeypatch):
    monkeypatch.setattr(asking, "PULL_MAX_S", 2.0)

    def connect(port, name):
        return PubSubTransport.open(f"pubsub://basin?prefix=w{name.replace('-', '')}", f"127.0.0.1:{port}")

    check_wires(server, fake.port, connect)
