"""NatsTransport: hints by NATS JetStream, for a store that says what the work is; needs the extra `nats`."""

from forebay.brokers.nats.address import Address
from forebay.brokers.nats.transport import NatsTransport

__all__ = ["Address", "NatsTransport"]
