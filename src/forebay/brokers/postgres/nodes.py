"""PostgresNodes: who works on this database; one small row of each, written about once a second."""

from collections.abc import Sequence
from typing import Final

from forebay.brokers.postgres.store import Store
from forebay.ports.nodes import NodeSeen

KEPT_S: Final = 3_600.0  # of one that stopped telling

_NOW: Final = "extract(epoch FROM clock_timestamp())::float8"
_TELL: Final = (
    f"WITH gone AS (DELETE FROM nodes WHERE at < {_NOW} - {KEPT_S:.1f} AND node <> %s)"
    f" INSERT INTO nodes (node, at, document) VALUES (%s, {_NOW}, %s)"
    " ON CONFLICT (node) DO UPDATE SET at = excluded.at, document = excluded.document RETURNING 1"
)
_LEAVE: Final = "DELETE FROM nodes WHERE node = %s RETURNING 1"
_SEEN: Final = f"SELECT node, {_NOW} - at, document FROM nodes WHERE at > {_NOW} - %s ORDER BY node"


class PostgresNodes:
    """A ports.nodes.Nodes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def tell(self, node: str, document: bytes) -> None:
        """Say that a node is there and how it is."""
        await self._store.read(_TELL, [node, node, document])

    async def leave(self, node: str) -> None:
        """Say that a node is there no more."""
        await self._store.read(_LEAVE, [node])

    async def seen(self, *, within_s: float) -> Sequence[NodeSeen]:
        """Return the nodes that told of themselves so lately, by name."""
        rows = await self._store.read(_SEEN, [within_s])
        return [NodeSeen(node, max(0.0, age_s), document) for node, age_s, document in rows]
