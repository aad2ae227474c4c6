"""Delivery: how the message broker in front of a store fares, for metrics and people."""

from typing import NamedTuple, Protocol, cast

from forebay.ports.broker import Broker


class Delivered(NamedTuple):
    """What one process did with its message broker since it started."""

    broker: str  # its name
    up: bool
    events: dict[str, int]  # hints by what became of them: sent, received, forged, ...
    requests: dict[str, int]  # to the broker, by verb
    held: int  # hints that are held now
    pending: int  # hints that wait to be sent


class Delivery(Protocol):
    """What a relay tells of itself."""

    def told(self) -> Delivered:
        """Return the counts so far, from memory."""
        ...


def delivery_of(broker: Broker) -> Delivery | None:
    """Return what an engine tells of its message broker; None where it has none."""
    return cast("Delivery | None", getattr(broker, "delivery", None))
