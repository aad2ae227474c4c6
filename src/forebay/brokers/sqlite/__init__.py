"""The embedded engine: SQLite as log, state and truth; one owner; the order of leases in memory."""

from forebay.brokers.sqlite.engine import SqliteBroker
from forebay.brokers.sqlite.store import SqlBook
from forebay.brokers.sqlite.trial import SqliteTrial

__all__ = ["SqlBook", "SqliteBroker", "SqliteTrial"]
