"""Google Pub/Sub as a way to deliver hints. Needs the extra `pubsub`."""

from forebay.brokers.pubsub.transport import PubSubTransport

__all__ = ["PubSubTransport"]
