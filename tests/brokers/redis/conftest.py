"""One server for all tests of a process."""

import pytest

from tests.brokers.redis.server import RedisServer


@pytest.fixture(scope="session")
def server():
    one = RedisServer()
    try:
        yield one.start()
    finally:
        one.stop()
