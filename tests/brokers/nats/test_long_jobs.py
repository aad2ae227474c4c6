"""Jobs that run longer than JetStream waits for an acknowledgement (F006): see the check for all brokers."""

import pytest

from forebay.brokers.nats import NatsTransport, streams
from tests.brokers.relay.holding import check_long_jobs

ACK_WAIT_S = 1


@pytest.mark.engines
@pytest.mark.timeout(150)
def test_f006_jobs_longer_than_ack_wait_run_once_and_their_hints_come_once(server, store, monkeypatch):
    monkeypatch.setattr(streams, "ACK_WAIT_S", ACK_WAIT_S)
    check_long_jobs(store, lambda: NatsTransport.open(server.url("long")), 2.5 * ACK_WAIT_S)
