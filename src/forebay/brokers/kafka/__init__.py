"""Kafka as a way to deliver hints: any cluster that speaks its protocol. Needs the extra `kafka`."""

from forebay.brokers.kafka.transport import KafkaTransport

__all__ = ["KafkaTransport"]
