"""Servers of the shared engines: one of each for all tests of a process, or one of a test's own."""

import contextlib

import pytest

from tests.brokers.postgres.server import PostgresServer
from tests.brokers.redis.server import RedisServer

SERVERS = {"postgres": PostgresServer, "redis": RedisServer}


@contextlib.contextmanager
def started(engine):
    one = SERVERS[engine]()
    try:
        yield one.make().start()
    finally:
        one.stop()


@pytest.fixture(scope="session", params=SERVERS)
def server(request):
    with started(request.param) as one:
        yield one


@pytest.fixture(params=SERVERS)
def own(request):
    """A server that a test may end."""
    with started(request.param) as one:
        yield one
