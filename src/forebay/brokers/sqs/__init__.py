"""SqsTransport: hints through Amazon SQS, for jobs that a store keeps; needs the extra `sqs`."""

from forebay.brokers.sqs.address import Address
from forebay.brokers.sqs.engine import SqsTransport

__all__ = ["Address", "SqsTransport"]
