"""app: `forebay api` as an ASGI application, for uvicorn or another server: uvicorn forebay.asgi:app.

FOREBAY_APP names the application, FOREBAY_BROKER an engine that processes share; any number of such
processes may run. The server owns sockets and signals; its end of the lifespan is our drain. With
`--http forebay.asgi:Guarded` uvicorn keeps our bounds on heads.
"""

import asyncio
import json
import os
import signal
from typing import Any

from forebay.clock import SystemClock
from forebay.config import app_named, load_settings
from forebay.errors import ConfigError, ForebayError, StoreUnavailableError
from forebay.node.roles import Role, check_role
from forebay.observe.logs import make_log
from forebay.running import described
from forebay.server.foreign import Guarded
from forebay.values import of_system
from forebay.wiring import System

__all__ = ["Application", "Guarded", "app"]


class Application:
    """One ASGI application: opened by the lifespan, and only by it."""

    def __init__(self) -> None:
        self._system: System | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, or live through the lifespan."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        system = self._system
        if system is None:
            await _refuse(scope, send)
            return
        await system.door(scope, receive, send)

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()  # lifespan.startup
        try:
            system = await _opened()
        except (ForebayError, OSError) as error:
            why = of_system(error) if isinstance(error, OSError) else error
            await send({"type": "lifespan.startup.failed", "message": f"forebay: {why}"})
            return
        self._system = system
        ending = asyncio.ensure_future(_end_with(system))
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown: the server has let its last request go
        ending.cancel()
        await system.drain()
        system.door.close()
        self._system = None
        await send({"type": "lifespan.shutdown.complete"})


async def _refuse(scope: Any, send: Any) -> None:
    """Answer that nothing was opened: the server was told to leave the lifespan out, or does not speak it."""
    error = StoreUnavailableError(
        "forebay.asgi:app is opened by the lifespan: this server has it switched off"
    )
    if scope["type"] != "http":
        await send({"type": "websocket.close", "code": 1011, "reason": str(error)})
        return
    view = {"title": error.title, "status": error.status, "detail": str(error), "code": error.code}
    headers = [(b"content-type", b"application/problem+json")]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(view).encode()})


async def _end_with(system: System) -> None:
    """End this process when its store is broken: what it answers from then on would be a guess."""
    await system.signals.drain.wait()
    os.kill(os.getpid(), signal.SIGTERM)


async def _opened() -> System:
    """Return a system that takes jobs. Raises ForebayError with one line."""
    target = app_named()
    if target is None:
        raise ConfigError("FOREBAY_APP must name the application: FILE_OR_MODULE[:app]")
    settings = load_settings()
    check_role(Role.API, settings)
    clock = SystemClock()
    log = make_log(now=clock.now, form=settings.log_format, level=settings.log_level)
    system = System(await described(target), settings, clock=clock, log=log, role=Role.API)
    await system.open()
    system.door.warm()
    await system.begin()
    return system


app = Application()
