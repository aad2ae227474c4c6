"""A wire to RabbitMQ that is cut, silent, half open or slow: see the set for all brokers."""

import pytest

from forebay.brokers.rabbitmq import RabbitTransport
from tests.brokers.relay.wired import check_wires

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]


@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_jobs_go_on_whatever_the_wire_does_and_delivery_comes_back(server, rabbit):
    def connect(port, name):
        return RabbitTransport.open(rabbit.url(prefix=f"wire-{name}", port=port))

    check_wires(server, rabbit.port, connect)
