"""Shapes of nodes, for people and for those who start and end them."""

import msgspec


class NodeView(msgspec.Struct):
    """One process that runs handlers, on the machine, or in the container, `host`. `state` is starting, idle,
    busy or draining; `in_hand` counts the jobs and requests with its replicas. The node with the lowest
    `deletion_cost` should go first: above 0 it is `in_hand`, else the negative seconds it has been idle."""

    node: str
    host: str
    state: str
    replicas: int
    ready: int
    in_hand: int
    idle_s: float
    deletion_cost: int
    unready: str | None
    started_at: str


class NodeList(msgspec.Struct):
    """All nodes on this engine, of the embedded one the only one; the one that should go first is first."""

    items: list[NodeView]
    next_cursor: str | None = None
