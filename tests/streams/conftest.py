import pytest

from tests.streams.queues import Queues


@pytest.fixture
def make():
    queues = Queues()
    yield queues
    queues.close()
