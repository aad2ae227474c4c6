"""PostgresBroker: jobs in PostgreSQL, shared by any number of servers; needs the extra `postgres`."""

from forebay.brokers.postgres.address import Address
from forebay.brokers.postgres.engine import PostgresBroker
from forebay.brokers.postgres.trial import PostgresTrial

__all__ = ["Address", "PostgresBroker", "PostgresTrial"]
