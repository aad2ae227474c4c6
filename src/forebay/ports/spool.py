"""SpoolView: what a server asks of a spool: submissions that wait beside an engine that is away."""

from typing import Final, Protocol

from forebay.ports.broker import Broker

UNSWEPT: Final = "no sweep of the store has worked"  # begins the reason of who waits for the store alone


class SpoolView(Protocol):
    """How much waits, and whether more may."""

    bytes: int

    def __len__(self) -> int:
        """Return how many jobs wait."""
        ...

    def has_room(self, now: float, *, jobs: int = 1, size_b: int = 0) -> bool:
        """Say whether so much more is taken."""
        ...


def spool_of(broker: Broker) -> SpoolView | None:
    """Return the spool in front of an engine, None where there is none."""
    found: SpoolView | None = getattr(broker, "spool", None)
    return found
