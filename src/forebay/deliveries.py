"""DELIVERIES: the message brokers that may stand before a store, by the scheme of the setting `broker`."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from forebay.clock import SystemClock
from forebay.config import process_environment
from forebay.ports.transport import Traits, Transport


class DeliveryEngine(NamedTuple):
    """A message broker that delivers hints of what a store holds."""

    name: str
    url: str  # how the setting `broker` is written
    extra: str  # what must be installed for it
    connect: Callable[[str], Awaitable[Transport]]  # raises ForebayError with one line
    traits: Callable[[], Traits]  # what it says of itself; needs nothing installed


# Each imports its adapter when it is used: it costs time, and its client is an extra.
async def _rabbitmq(url: str) -> Transport:
    from forebay.brokers.rabbitmq import RabbitTransport

    return await RabbitTransport.open(url)


def _rabbitmq_traits() -> Traits:
    from forebay.brokers.rabbitmq.transport import TRAITS

    return TRAITS


async def _nats(url: str) -> Transport:
    from forebay.brokers.nats import NatsTransport

    return await NatsTransport.open(url)


def _nats_traits() -> Traits:
    from forebay.brokers.nats.transport import TRAITS

    return TRAITS


async def _sqs(url: str) -> Transport:
    from forebay.brokers.sqs import SqsTransport

    return await SqsTransport.open(url, clock=SystemClock())


def _sqs_traits() -> Traits:
    from forebay.brokers.sqs import SqsTransport

    return SqsTransport.traits


async def _kafka(url: str) -> Transport:
    from forebay.brokers.kafka import KafkaTransport

    return await KafkaTransport.open(url)


def _kafka_traits() -> Traits:
    from forebay.brokers.kafka.transport import TRAITS

    return TRAITS


async def _pubsub(url: str) -> Transport:
    from forebay.brokers.pubsub import PubSubTransport

    return await PubSubTransport.open(url, process_environment().get("PUBSUB_EMULATOR_HOST") or None)


def _pubsub_traits() -> Traits:
    from forebay.brokers.pubsub.transport import TRAITS

    return TRAITS


_RABBITMQ: Final = DeliveryEngine(
    "RabbitMQ", "`amqp://user@host:port/vhost`", "rabbitmq", _rabbitmq, _rabbitmq_traits
)
_NATS: Final = DeliveryEngine("NATS JetStream", "`nats://user@host:4222`", "nats", _nats, _nats_traits)

DELIVERIES: Final[Mapping[str, DeliveryEngine]] = {
    "amqp": _RABBITMQ,
    "amqps": _RABBITMQ,
    "nats": _NATS,
    "tls": _NATS,
    "sqs": DeliveryEngine("Amazon SQS", "`sqs://REGION/PREFIX`", "sqs", _sqs, _sqs_traits),
    "kafka": DeliveryEngine("Kafka", "`kafka://host:9092,host:9092`", "kafka", _kafka, _kafka_traits),
    "pubsub": DeliveryEngine("Google Pub/Sub", "`pubsub://PROJECT`", "pubsub", _pubsub, _pubsub_traits),
}


def message_brokers() -> tuple[DeliveryEngine, ...]:
    """Return each message broker once."""
    return tuple({one.name: one for one in DELIVERIES.values()}.values())
