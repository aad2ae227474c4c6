"""Nodes: who works on a store that several processes share: told again and again, forgotten when it stops.

A shared engine keeps it; what it holds is for people and for estimates, never for a decision about a job.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from forebay.ports.broker import Broker


class NodeSeen(NamedTuple):
    """One process as it told of itself."""

    node: str  # its identity: another one after each start
    age_s: float  # since it told, by the engine's clock
    document: bytes


class Nodes(Protocol):
    """The registry of an engine. Best effort: it may forget all when the engine's server crashes."""

    async def tell(self, node: str, document: bytes) -> None:
        """Say that a node is there and how it is, in place of what it said before."""
        ...

    async def leave(self, node: str) -> None:
        """Say that a node is there no more."""
        ...

    async def seen(self, *, within_s: float) -> Sequence[NodeSeen]:
        """Return the nodes that told of themselves so lately, by name."""
        ...


def nodes_of(broker: Broker) -> Nodes | None:
    """Return the registry of an engine, None where it has none: a store of one process needs none."""
    found: Nodes | None = getattr(broker, "nodes", None)
    return found
