"""Listener: a small HTTP and WebSocket server in a thread of its own, with the bounds of the large one."""

import asyncio
import contextlib
import importlib.util
import ipaddress
import logging
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

import uvicorn

from forebay.clock import SystemClock
from forebay.errors import ConfigError, UnreachableError
from forebay.server.guard import GuardedProtocol
from forebay.server.looking import LOOK_S, look_at

CONNECTIONS_MAX: Final = 256
START_S: Final = 30.0
STOP_S: Final = 2.0
TOKEN_LENGTH_MIN: Final = 16

App = Callable[[Any, Any, Any], Awaitable[None]]


class _Protocol(GuardedProtocol):
    upgrades = True


class Listener:
    """Serves one ASGI application. Start and stop it from any thread but its own."""

    def __init__(self, app: App, *, host: str, port: int, message_bytes_max: int) -> None:
        self._app = app
        self._host = host
        self._message_bytes_max = message_bytes_max
        self._socket = bind(host, port)
        self.port = int(self._socket.getsockname()[1])
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._started = threading.Event()

    @property
    def url(self) -> str:
        """Where it listens."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    def start(self) -> None:
        """Serve. Raises UnreachableError when it does not come up."""
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)
        self._thread.start()
        if not self._started.wait(START_S) or self._server is None:
            raise UnreachableError(f"{self.url}: the listener did not start")

    def call(self, function: Callable[..., object], *arguments: object) -> bool:
        """Have the loop call a function soon; return False when it has ended."""
        loop = self._loop
        if loop is None:
            return False
        try:
            loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return False
        return True

    def stop(self) -> None:
        """End connections and the thread, within a few seconds. Twice is once."""
        server, thread = self._server, self._thread
        if server is not None:
            server.should_exit = True
        if thread is not None and thread is not threading.current_thread():
            thread.join(STOP_S)
            if server is not None and thread.is_alive():
                server.force_exit = True
                thread.join(STOP_S)
        self._socket.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._loop = None
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # of each malformed request, it would say
        config = uvicorn.Config(
            self._app,
            http=_Protocol,
            ws="websockets-sansio" if has_websockets() else "none",
            ws_max_size=self._message_bytes_max,
            ws_max_queue=1,
            ws_per_message_deflate=False,
            interface="asgi3",
            lifespan="off",
            access_log=False,
            log_config=None,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=1,
            server_header=False,
            proxy_headers=False,
        )
        server = uvicorn.Server(config)
        serving = asyncio.ensure_future(_listen(server, self._socket))
        clock = SystemClock()
        while not server.started and not serving.done():
            await clock.sleep(0.005)
        if not serving.done():
            self._server = server
        self._started.set()
        await asyncio.wait({serving, asyncio.ensure_future(_watch(server, serving))})
        await serving


async def _listen(server: uvicorn.Server, listening: socket.socket) -> None:
    await server.serve(sockets=[listening])


async def _watch(server: uvicorn.Server, serving: "asyncio.Future[None]") -> None:
    """End connections that are too slow."""
    loop = asyncio.get_running_loop()
    while not serving.done():
        await asyncio.wait({serving}, timeout=LOOK_S)
        look_at(server.server_state.connections, now=loop.time())


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises UnreachableError in one line when there can be none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(CONNECTIONS_MAX)
    except (OSError, OverflowError) as error:
        listening.close()
        raise UnreachableError(f"cannot listen on {host}:{port}: {error}") from None
    return listening


def check_token(host: str, token: str | None) -> None:
    """Raise ConfigError where anybody on the network could come in, and for a token that can be guessed."""
    if token is not None and (
        len(token) < TOKEN_LENGTH_MIN or not token.isascii() or not token.isprintable()
    ):
        raise ConfigError(f"token must be {TOKEN_LENGTH_MIN} or more printable characters")
    if token is None and not is_loopback(host):
        raise ConfigError(f"host {host} can be reached from elsewhere: give token=, which callers must show")


def has_websockets() -> bool:
    """Return whether the package is there that speaks WebSocket; without it this is HTTP alone."""
    return importlib.util.find_spec("websockets") is not None


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches it."""
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
