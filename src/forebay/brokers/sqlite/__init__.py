"""The embedded engine: SQLite as log, state and truth; one owner; the order of leases in memory."""

from forebay.brokers.sqlite.engine import SqliteBroker
from forebay.brokers.sqlite.store import SqlBook

__all__ = ["SqlBook", "SqliteBroker"]
