"""A RabbitMQ for all tests of a process, and the stores behind it."""

import pytest

from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.shared.conftest import server


@pytest.fixture(scope="session")
def rabbit():
    one = RabbitServer()
    try:
        yield one.start()
    finally:
        one.stop()


__all__ = ["rabbit", "server"]
