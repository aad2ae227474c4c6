"""Checks of the contract of an engine, with Redis behind and a cluster of the Kafka protocol before it."""

import pytest

from tests.brokers.kafka.mocking import Mock
from tests.brokers.relay.behind import holds

PARTS = 6  # `forebay conform kafka://…` runs all; the lane has time for one in six


@pytest.fixture
def cluster():
    one = Mock()
    try:
        yield one
    finally:
        one.stop()


@pytest.mark.engines
@pytest.mark.timeout(300)
@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_checks_of_the_contract_hold_behind_kafka(server, cluster):
    holds(cluster.url(), server, 0, PARTS)
