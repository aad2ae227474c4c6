"""Guarded: our bounds on connections for a uvicorn of somebody else's: `--http forebay.asgi:Guarded`."""

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.server import ServerState

from forebay.server.guard import GuardedProtocol
from forebay.server.looking import LOOK_S, look_at

_watching: "WeakKeyDictionary[ServerState, asyncio.TimerHandle]" = WeakKeyDictionary()


class Guarded(GuardedProtocol):
    """One connection. The first of a server begins to look for those that are too slow."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock of the first head."""
        super().connection_made(transport)
        if self.server_state not in _watching:
            _look(self.server_state, self.loop)


def _look(state: ServerState, loop: asyncio.AbstractEventLoop) -> None:
    """End connections that are too slow; again in a second while there are any."""
    connections: set[Any] = state.connections
    look_at(connections, now=loop.time())
    if connections:
        _watching[state] = loop.call_later(LOOK_S, _look, state, loop)
    else:
        _watching.pop(state, None)
