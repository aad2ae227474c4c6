"""Hinted: what a store that servers share offers to a relay of a message broker in front of it."""

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Protocol, cast

from forebay.ports.broker import Broker, Change


class Source(Enum):
    """Who made durable what is told."""

    OWN = "own"  # this process
    OTHERS = "others"  # another one, which sends its hints itself
    NOBODYS = "nobodys"  # one that sends no hints, or could not


# Who made it durable, the tasks of which a job may be granted that could not before, and the changes.
Hearer = Callable[[Source, Collection[str], Sequence[Change]], None]


class Hinted(Protocol):
    """Verbs beside those of a Broker. Raises ForebayError as they do."""

    async def secret(self) -> bytes:
        """Return the key that hints are signed with: made once for a store, and kept in it."""
        ...

    async def queued(self, task: str, *, limit: int) -> list[str]:
        """Return ids of queued jobs of a task, those that wait longest first as far as that is cheap."""
        ...

    async def still_queued(self, ids: Sequence[str]) -> set[str]:
        """Return which of these jobs are queued."""
        ...

    def cry(self, tasks: Collection[str]) -> None:
        """Ring everywhere for these tasks, as nobody sends hints of their jobs. Best effort."""
        ...

    def on_told(self, hearer: Hearer) -> Callable[[], None]:
        """Register who hears of what is durable, and who made it so; returns the way to remove it. Of
        this process's own work it may hear before, without a change: a lease finds it or waits for it."""
        ...


def hinted_of(broker: Broker) -> Hinted | None:
    """Return what an engine offers to a relay; None where its store has one owner."""
    return cast("Hinted | None", getattr(broker, "hinted", None))
