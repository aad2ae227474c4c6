"""A Kafka of two brokers inside this process, by librdkafka's own mock cluster; reached over TCP like any."""

from confluent_kafka import Producer


class Kafka:
    """Keeps the producer that owns the cluster; `servers` is its address."""

    def __init__(self):
        self._owner = Producer({"test.mock.num.brokers": 2, "bootstrap.servers": "x", "log_level": 0})
        brokers = self._owner.list_topics(timeout=10).brokers.values()
        self.servers = ",".join(f"{one.host}:{one.port}" for one in brokers)

    def send(self, topic, value, **more):
        self._owner.produce(topic, value, **more)
        assert self._owner.flush(30) == 0
