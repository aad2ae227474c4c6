"""Servers: one of each kind for all tests of a process, or one of a test's own."""

import pytest

from tests.brokers.nats.server import NatsServer, binaries
from tests.brokers.redis.server import RedisServer


@pytest.fixture(scope="session")
def server():
    one = NatsServer()
    try:
        yield one.start()
    finally:
        one.stop()


@pytest.fixture
def own():
    """A server that a test may end."""
    one = NatsServer()
    try:
        yield one.start()
    finally:
        one.stop()


@pytest.fixture(scope="session", params=list(binaries()))
def each(request):
    """A server of each kind that this machine has."""
    one = NatsServer(binaries()[request.param])
    try:
        yield one.start()
    finally:
        one.stop()


@pytest.fixture(scope="session")
def store():
    """What keeps the jobs behind it."""
    one = RedisServer()
    try:
        yield one.start()
    finally:
        one.stop()
