"""spooled(): a broker in front of a shared engine: what is submitted while the engine is away stays here."""

from forebay.brokers.spooled.broker import spooled
from forebay.brokers.spooled.spool import Bounds

__all__ = ["Bounds", "spooled"]
