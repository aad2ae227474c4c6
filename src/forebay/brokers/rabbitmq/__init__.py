"""RabbitMQ: delivers hints through quorum queues, one for each task."""

from forebay.brokers.rabbitmq.transport import RabbitTransport

__all__ = ["RabbitTransport"]
