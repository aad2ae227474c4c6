"""Brokers for all tests of a process, each a process of its own."""

import pytest

from tests.brokers.kafka.mocking import Mock
from tests.brokers.kafka.tansu import Tansu
from tests.brokers.shared.conftest import server

__all__ = ["server"]


@pytest.fixture(scope="session")
def tansu():
    one = Tansu()
    try:
        yield one.start()
    finally:
        one.stop()


@pytest.fixture(scope="session")
def cluster():
    one = Mock()
    try:
        yield one
    finally:
        one.stop()


@pytest.fixture
def mock(cluster):
    yield cluster
    cluster.do("up")
    cluster.do("rtt", 0)
    cluster.do("clear")
