"""One service of each kind for all tests of a process."""

import pytest

from tests.brokers.pubsub.servers import Fake, kinds
from tests.brokers.shared.conftest import server

__all__ = ["server"]


@pytest.fixture(scope="session", params=kinds(), ids=lambda kind: kind.name)
def service(request):
    one = request.param()
    try:
        yield one.start()
    finally:
        one.stop()


@pytest.fixture(scope="module")
def fake():
    one = Fake()
    try:
        yield one.start()
    finally:
        one.stop()
