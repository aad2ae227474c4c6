"""Dialects: other servers' addresses and shapes, each answered by way of our own routes."""

from forebay.server.dialects.desk import Dialects, is_dialect

__all__ = ["Dialects", "is_dialect"]
