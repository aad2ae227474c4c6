"""One server of each shared engine for all tests of a process."""

import pytest

from tests.brokers.postgres.server import PostgresServer
from tests.brokers.redis.server import RedisServer


@pytest.fixture(scope="session", params=["postgres", "redis"])
def server(request):
    one = PostgresServer() if request.param == "postgres" else RedisServer()
    try:
        yield one.make().start()
    finally:
        one.stop()
