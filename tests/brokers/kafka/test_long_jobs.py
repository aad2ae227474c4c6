"""Jobs that run longer than a consumer may be without a poll (F006): see the check for all brokers."""

import pytest

from forebay.brokers.kafka import KafkaTransport, reading
from forebay.brokers.kafka.address import Address
from tests.brokers.relay.holding import check_long_jobs

POLL_MAX_S = (
    6.0  # who does not poll for so long is thrown out of the group; longer than a busy machine stalls
)


@pytest.mark.engines
@pytest.mark.timeout(150)
@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_f006_jobs_longer_than_the_poll_interval_run_once_and_nobody_leaves_the_group(
    server, tansu, monkeypatch
):
    monkeypatch.setattr(reading, "SESSION_S", POLL_MAX_S)
    assigned = []
    noted = reading.Reader._assigned

    def note(reader, consumer, partitions):
        assigned.append(partitions)
        noted(reader, consumer, partitions)

    monkeypatch.setattr(reading.Reader, "_assigned", note)

    async def connect():
        address = Address.of(tansu.url(prefix="long", partitions=1))
        most = str(int(POLL_MAX_S * 1000))
        settings = {"max.poll.interval.ms": most, "session.timeout.ms": most, "heartbeat.interval.ms": "500"}
        return KafkaTransport(address._replace(settings={**address.settings, **settings}))

    check_long_jobs(server, connect, 2 * POLL_MAX_S, joined=lambda: len(assigned))
