"""Looking: once a second at every connection of a server; those that are too slow are ended."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from uvicorn.server import ServerState

from forebay.loops import goes_on
from forebay.server.front import Front
from forebay.server.guard import GuardedProtocol

LOOK_S = 1.0  # how often connections are looked at


def look_at(
    connections: Iterable[Any], *, now: float, reached: Callable[[str], object] | None = None
) -> None:
    """End the connections that are too slow; `reached` hears the name of each bound that was."""
    for connection in tuple(connections):
        if isinstance(connection, GuardedProtocol):
            bound = connection.look(now)
            if bound is not None and reached is not None:
                reached(bound)


async def watch(state: ServerState, front: Front) -> None:
    """Look once a second, for ever."""
    loop = asyncio.get_running_loop()

    async def turn() -> None:
        await front.clock.sleep(LOOK_S)
        look_at(state.connections, now=loop.time(), reached=front.meters.bound_reached)

    await goes_on(turn, "look at connections")
