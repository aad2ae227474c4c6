"""Checks of the contract of an engine, with Redis behind and Pub/Sub before it."""

import pytest

from tests.brokers.relay.behind import holds

PARTS = 6  # `forebay conform pubsub://…` runs all; the lane has time for one in six


@pytest.mark.engines
@pytest.mark.timeout(300)
@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_checks_of_the_contract_hold_behind_pubsub(server, fake, monkeypatch):
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", fake.address)
    holds("pubsub://basin", server, 1, PARTS)
