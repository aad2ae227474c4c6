"""RedisBroker: jobs in Redis or Valkey, shared by any number of servers; needs the extra `redis`."""

from forebay.brokers.redis.address import Address
from forebay.brokers.redis.engine import RedisBroker
from forebay.brokers.redis.trial import RedisTrial

__all__ = ["Address", "RedisBroker", "RedisTrial"]
