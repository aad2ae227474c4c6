"""Server: uvicorn with our bounds; sockets bound first, signals left to the caller."""

import asyncio
import contextlib
import ctypes
import errno
import logging
import socket
import struct
from collections.abc import Generator
from pathlib import Path
from typing import Any

import uvicorn

from forebay.config import Settings
from forebay.errors import UnreachableError
from forebay.server.asgi import AdminDoor, Door, WorkDoor
from forebay.server.guard import GuardedProtocol
from forebay.server.looking import watch

BACKLOG = 4_096
KEEP_ALIVE_S = 75.0  # idle connections of clients are kept a little longer than common proxies keep theirs
STOP_S = 5.0  # connections get this long to take their last answer
LAST_ACCEPTS_S = 0.05  # for handshakes under way when no new one is let in any more
CUT_S = 1.0  # and after that uvicorn gets this long to let go of them
START_S = 30.0
_TICK_S = 1.0
_SOMAXCONN = Path("/proc/sys/net/core/somaxconn")


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers: the process that embeds us owns the signals."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        """Have it end."""
        self.should_exit = True
        self._leaving.set()

    async def main_loop(self) -> None:
        """Set the date of answers once a second, and end when told to. uvicorn's own loop wakes ten times as
        often to see whether it should end: half of all that a server at rest does."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._leaving.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _with_hatch(door: Door) -> type[GuardedProtocol]:
    """Return the protocol of the connections of this door: uvicorn makes them, and hands them nothing."""

    class Hatched(GuardedProtocol):
        """One connection of this door."""

        hatch = door.hatch

    return Hatched


class Server:
    """One listening HTTP server in the running loop."""

    def __init__(
        self,
        door: Door,
        *,
        host: str,
        port: int,
        app: AdminDoor | WorkDoor | None = None,
        beside: "Server | None" = None,
    ) -> None:
        self._door = door
        self.beside = beside  # the admin listener, which starts and stops with this one
        self._app = app or door  # how the door shows itself on this listener
        self._host = host
        self._port = port
        self._listeners: list[socket.socket] = []
        self._uvicorn: _Uvicorn | None = None
        self._task: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen and return the port. Raises UnreachableError with one line when it cannot."""
        if self.beside is not None:
            await self.beside.start()
        try:
            return await self._start()
        except BaseException:
            if self.beside is not None:
                await self.beside.stop()
            raise

    async def _start(self) -> int:
        self._door.warm()
        self._listeners = listeners = await _listen(self._host, self._port)
        self._port = port = _port(listeners[0])
        config = uvicorn.Config(
            self._app,
            http=_with_hatch(self._door) if self._app is self._door else GuardedProtocol,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            backlog=BACKLOG,
            timeout_keep_alive=int(KEEP_ALIVE_S),
            timeout_graceful_shutdown=int(STOP_S),
            server_header=False,
            proxy_headers=False,
        )
        # It would say something of each malformed request, in a format of its own, as often as anybody likes.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._uvicorn = _Uvicorn(config)
        self._task = asyncio.ensure_future(self._uvicorn.serve(sockets=listeners))
        async with asyncio.timeout(START_S):
            while not self._uvicorn.started and not self._task.done():
                await self._door.front.clock.sleep(0.005)
        if self._task.done():
            await self._task
            raise UnreachableError("the HTTP server ended while it started")
        self._watch = asyncio.ensure_future(watch(self._uvicorn.server_state, self._door.front))
        self._say_backlog()
        return port

    @property
    def url(self) -> str:
        """Where it listens."""
        host = self._host if ":" not in self._host else f"[{self._host}]"
        return f"http://{host}:{self._port}"

    def begin_drain(self) -> None:
        """Refuse new work with 503 and Connection: close; keep listening and answering about old work."""
        self._door.front.lifecycle.begin_drain()

    async def stop(self, *, within_s: float = STOP_S) -> None:
        """Close the listeners, let answers that are on their way finish, cut what is not done in time.

        Twice is harmless.
        """
        self.begin_drain()
        self._door.close()
        beside = None if self.beside is None else asyncio.ensure_future(self.beside.stop(within_s=within_s))
        if self._watch is not None:
            self._watch.cancel()
        if self._uvicorn is not None and self._task is not None:
            if not self._uvicorn.should_exit:
                _shut(self._listeners)
                await self._door.front.clock.sleep(LAST_ACCEPTS_S)
            self._uvicorn.leave()
            await asyncio.wait({self._task}, timeout=min(within_s, STOP_S))
            self._uvicorn.force_exit = True
            await asyncio.wait({self._task}, timeout=CUT_S)
        if beside is not None:
            await beside

    def _say_backlog(self) -> None:
        try:
            limit = int(_SOMAXCONN.read_text("ascii"))
        except (OSError, ValueError):
            return
        if limit < BACKLOG:
            self._door.front.log.info(
                "listen_backlog_capped", backlog=BACKLOG, somaxconn=limit, hint="raise net.core.somaxconn"
            )


def server_for(door: Door, settings: Settings, *, works_only: bool = False) -> Server:
    """Return the server of a door, with an admin listener beside it where the settings ask for one.

    `works_only`: it answers those who look after it and takes no work.
    """
    if works_only:
        return Server(door, host=settings.host, port=settings.port, app=WorkDoor(door))
    admin = None
    if settings.admin_port is not None:
        admin = Server(door, host=settings.admin_host, port=settings.admin_port, app=AdminDoor(door))
    return Server(door, host=settings.host, port=settings.port, beside=admin)


_SO_ATTACH_FILTER = 26
_NO_SYN = (  # classic BPF over the TCP header: (code, jump if true, jump if false, value)
    (0x30, 0, 0, 13),  # load the byte of flags
    (0x45, 0, 1, 0x02),  # does it ask for a new connection?
    (0x06, 0, 0, 0),  # then drop it
    (0x06, 0, 0, 0xFFFFFFFF),  # else let it through
)


def _shut(listeners: list[socket.socket]) -> None:
    """Let no new handshake begin, so that closing the listener resets nobody who waits to be accepted.

    A client that comes later is refused when it knocks again. Where the kernel has no such filter,
    closing may reset those few.
    """
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *row) for row in _NO_SYN))
    given = struct.pack("@HP", len(_NO_SYN), ctypes.addressof(program))
    for listener in listeners:
        with contextlib.suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, given)


async def _listen(host: str, port: int) -> list[socket.socket]:
    """Bind every address the name stands for, on one port, or none of them."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise UnreachableError(f"cannot listen on {host}: {_why(error)}") from None
    listeners: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            listener = socket.socket(family, socket.SOCK_STREAM)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            chosen: Any = (
                address if port or len(listeners) == 1 else (address[0], _port(listeners[0]), *address[2:])
            )
            listener.bind(chosen)
            listener.setblocking(False)
    except OSError as error:
        for listener in listeners:
            listener.close()
        hint = "; name another --port, 0 takes a free one" if error.errno == errno.EADDRINUSE else ""
        raise UnreachableError(f"cannot listen on {host} port {port}: {_why(error)}{hint}") from None
    return listeners


def _port(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def _why(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
