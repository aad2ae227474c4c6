"""Guarded: our bounds on heads for a uvicorn of somebody else's: `--http forebay.asgi:Guarded`."""

import asyncio
from typing import Any, Final
from weakref import WeakKeyDictionary

from uvicorn.server import ServerState

from forebay.server.guard import GuardedProtocol

LOOK_S: Final = 1.0
_watching: "WeakKeyDictionary[ServerState, asyncio.TimerHandle]" = WeakKeyDictionary()


class Guarded(GuardedProtocol):
    """One connection. The first of a server begins to look for those that are too slow."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock of the first head."""
        super().connection_made(transport)
        if self.server_state not in _watching:
            _look(self.server_state, self.loop)


def _look(state: ServerState, loop: asyncio.AbstractEventLoop) -> None:
    """End connections that are too slow with their heads; again in a second while there are any."""
    connections: set[Any] = state.connections
    for connection in tuple(connections):
        if isinstance(connection, Guarded) and not connection.transport.is_closing():
            error = connection.overdue(loop.time())
            if error is not None:
                connection.end(error)
    if connections:
        _watching[state] = loop.call_later(LOOK_S, _look, state, loop)
    else:
        _watching.pop(state, None)
