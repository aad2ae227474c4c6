"""RedisNodes: who works on this store; one document of each, written about once a second."""

from collections.abc import Sequence
from typing import Final

from forebay.brokers.redis.store import Store
from forebay.ports.nodes import NodeSeen

KEPT_S: Final = 3_600.0  # of one that stopped telling


class RedisNodes:
    """A ports.nodes.Nodes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def tell(self, node: str, document: bytes) -> None:
        """Say that a node is there and how it is."""
        await self._store.read("told", node=node, document=document, kept=KEPT_S)

    async def leave(self, node: str) -> None:
        """Say that a node is there no more."""
        await self._store.read("left", node=node)

    async def seen(self, *, within_s: float) -> Sequence[NodeSeen]:
        """Return the nodes that told of themselves so lately, by name."""
        found = await self._store.read("nodes", within=float(within_s))
        rows = [NodeSeen(node.decode(), max(0.0, float(age_s)), document) for node, age_s, document in found]
        return sorted(rows)
