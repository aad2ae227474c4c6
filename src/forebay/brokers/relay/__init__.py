"""Relay: any store that servers share, with any message broker that delivers hints of its work."""

from forebay.brokers.relay.engine import Relay
from forebay.brokers.relay.memory import MemoryHub, MemoryTransport
from forebay.brokers.relay.trial import RelayTrial

__all__ = ["MemoryHub", "MemoryTransport", "Relay", "RelayTrial"]
