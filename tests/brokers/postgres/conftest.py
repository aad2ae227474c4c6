"""One server for all tests of a process."""

import pytest

from tests.brokers.postgres.server import PostgresServer


@pytest.fixture(scope="session")
def server():
    one = PostgresServer()
    try:
        yield one.make().start()
    finally:
        one.stop()
