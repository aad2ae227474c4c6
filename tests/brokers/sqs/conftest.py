"""One moto for all tests of a process, a gate for each test, and AWS's chain that finds keys of the tests alone."""

import itertools
import os

import pytest

from tests.brokers.redis.server import RedisServer
from tests.brokers.sqs.gate import KEY, SECRET, Gate
from tests.brokers.sqs.server import MotoServer

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def moto():
    one = MotoServer()
    try:
        yield one.start()
    finally:
        one.stop()


@pytest.fixture(autouse=True)
def keys(monkeypatch, tmp_path):
    """Nothing of this machine's own configuration is seen."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture
def gate(moto):
    with Gate(moto.port) as one:
        yield one


@pytest.fixture
def prefix():
    """What the queues of one test are called."""
    return f"t{os.getpid()}_{next(_NUMBERS)}"


@pytest.fixture(scope="module")
def redis():
    one = RedisServer()
    try:
        yield one.start()
    finally:
        one.stop()
