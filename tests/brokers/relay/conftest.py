"""Stores behind the relay: the servers of the shared engines."""

from tests.brokers.shared.conftest import own, server

__all__ = ["own", "server"]
