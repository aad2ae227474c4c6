"""Open-loop HTTP load: requests leave when they are due, whatever the server does; one process, one epoll.

Latency counts from the scheduled instant, so a generator or a server that lags hides nothing. Connections are
kept alive and used newest first; where none is idle a new one is opened. A request that is not answered within
`give_up_s` is given up and its connection closed, as a client does. Nothing is sent twice.
"""

import errno
import gc
import heapq
import random
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

GAVE_UP, REFUSED, RESET = -1, -2, -3  # in place of a status
SPIN_S = 0.0003  # closer than this to the next send nobody sleeps
# A server that does not take its connections leaves them half closed, and their ports taken, for a minute; the search
# for a free one among 28,000 then costs milliseconds.
FROM_ONE_ADDRESS_MAX = 8_000
_BIND_NO_PORT = getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24)


class Shot(NamedTuple):
    """One request: when it was due and when it left (seconds from the start), and what came of it."""

    due_s: float
    sent_s: float
    done_s: float
    status: int
    head: bytes
    body: bytes
    kind: int

    @property
    def latency_s(self) -> float:
        """Seconds from the scheduled instant to the answer."""
        return self.done_s - self.due_s


class Due(NamedTuple):
    """One request to be sent. `kind` is the caller's own number for it."""

    at_s: float
    request: bytes
    kind: int = 0


def poisson(rate_per_s: float, start_s: float, for_s: float, chance: random.Random) -> list[float]:
    """Return the instants of independent arrivals."""
    times: list[float] = []
    at = start_s + chance.expovariate(rate_per_s)
    while at < start_s + for_s:
        times.append(at)
        at += chance.expovariate(rate_per_s)
    return times


def whole(buffer: bytes) -> tuple[bytes, bytes] | None:
    """Return the head, in small letters, and the body of an answer; None where some of it is missing."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = buffer[:end].lower()
    if b"\r\ntransfer-encoding: chunked" in head:
        body = _unchunked(buffer[end + 4 :])
        return None if body is None else (head, body)
    at = head.find(b"\r\ncontent-length: ")
    stop = head.find(b"\r\n", at + 2)
    length = int(head[at + 18 : stop if stop > 0 else len(head)]) if at >= 0 else 0
    return None if len(buffer) < end + 4 + length else (head, buffer[end + 4 :])


def _unchunked(rest: bytes) -> bytes | None:
    body = b""
    while True:
        size, found, rest = rest.partition(b"\r\n")
        if not found:
            return None
        length = int(size.partition(b";")[0], 16)
        if len(rest) < length + 2:
            return None
        if not length:
            return body
        body += rest[:length]
        rest = rest[length + 2 :]


class _Connection:
    __slots__ = ("buffer", "fd", "generation", "out", "shot", "socket", "used")

    def __init__(self, port: int, source: int = 1) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        if source > 1:  # the port is then found at connect, among those free before this server
            self.socket.setsockopt(socket.IPPROTO_IP, _BIND_NO_PORT, 1)
            self.socket.bind((f"127.0.0.{source}", 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fd = self.socket.fileno()
        self.shot = -1
        self.out = b""
        self.buffer = b""
        self.used = False
        self.generation = 0
        code = self.socket.connect_ex(("127.0.0.1", port))
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, "connect")


class OpenLoop:
    """Sends what is due to one port and keeps what became of it."""

    def __init__(self, port: int, *, give_up_s: float = 2.0) -> None:
        self._port = port
        self._give_up_s = give_up_s
        self._epoll = select.epoll()
        self._by_fd: dict[int, _Connection] = {}
        self._idle: list[_Connection] = []
        self._due: Sequence[Due] = ()
        self._sent: list[float] = []
        self._results: list[Shot | None] = []
        self._expiries: list[tuple[float, int, int, int]] = []  # heap of (when, shot, fd, generation)
        self._open = 0
        self._connected = 0
        self._began = 0.0

    def run(
        self, due: Sequence[Due], *, hooks: Sequence[tuple[float, Callable[[], None]]] = ()
    ) -> list[Shot]:
        """Send all of `due` (sorted) and return what became of each, in order. `hooks` are called at their
        seconds and must be quick."""
        self._due = due
        self._sent = [0.0] * len(due)
        self._results = [None] * len(due)
        waiting_hooks = sorted(hooks, key=lambda hook: hook[0])
        gc.disable()
        self._began = time.perf_counter()
        at = 0
        try:
            while at < len(due) or self._open:
                now = self._now()
                while waiting_hooks and waiting_hooks[0][0] <= now:
                    waiting_hooks.pop(0)[1]()
                while at < len(due) and due[at].at_s <= now:
                    self._send(at)
                    at += 1
                self._expire(now)
                self._listen(due[at].at_s if at < len(due) else None, waiting_hooks)
        finally:
            gc.enable()
            for connection in list(self._by_fd.values()):
                self._drop(connection)
        return [shot for shot in self._results if shot is not None]

    def _now(self) -> float:
        return time.perf_counter() - self._began

    def _listen(self, next_s: float | None, hooks: Sequence[tuple[float, Callable[[], None]]]) -> None:
        ends = [one for one in (next_s, hooks[0][0] if hooks else None) if one is not None]
        if self._expiries:
            ends.append(self._expiries[0][0])
        left = (min(ends) if ends else self._now() + 0.1) - self._now()
        wait = 0.0 if left < SPIN_S else left - SPIN_S / 2
        for fd, event in self._epoll.poll(wait, 512):
            connection = self._by_fd.get(fd)
            if connection is None:
                continue
            if event & select.EPOLLOUT and connection.out:
                self._write(connection)
            if event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) and fd in self._by_fd:
                self._read(connection)

    def _send(self, shot: int) -> None:
        connection = self._idle.pop() if self._idle else self._connect(shot)
        if connection is None:
            return
        self._sent[shot] = self._now()
        self._open += 1
        connection.shot = shot
        connection.generation += 1
        connection.buffer = b""
        connection.out = self._due[shot].request
        expiry = (self._due[shot].at_s + self._give_up_s, shot, connection.fd, connection.generation)
        heapq.heappush(self._expiries, expiry)
        if connection.used:
            self._write(connection)
        else:
            connection.used = True

    def _connect(self, shot: int) -> _Connection | None:
        try:
            connection = _Connection(self._port, 1 + self._connected // FROM_ONE_ADDRESS_MAX)
            self._connected += 1
        except OSError:
            self._sent[shot] = self._now()
            self._finish(shot, REFUSED, b"", b"")
            return None
        self._by_fd[connection.fd] = connection
        self._epoll.register(connection.fd, select.EPOLLIN | select.EPOLLOUT)
        return connection

    def _write(self, connection: _Connection) -> None:
        try:
            count = connection.socket.send(connection.out)
        except BlockingIOError:
            count = 0
        except OSError as error:
            self._broken(connection, REFUSED if error.errno == errno.ECONNREFUSED else RESET)
            return
        connection.out = connection.out[count:]
        wants = select.EPOLLIN | (select.EPOLLOUT if connection.out else 0)
        self._epoll.modify(connection.fd, wants)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(connection, REFUSED if error.errno == errno.ECONNREFUSED else RESET)
            return
        if not data:
            self._broken(connection, RESET)
            return
        buffer = connection.buffer = connection.buffer + data
        answer = whole(buffer) if connection.shot >= 0 else None
        if answer is None:
            return
        head, body = answer
        shot, connection.shot = connection.shot, -1
        self._open -= 1
        self._finish(shot, int(head[9:12]), head, body)
        if b"\r\nconnection: close" in head:
            self._drop(connection)
        else:
            self._idle.append(connection)

    def _broken(self, connection: _Connection, status: int) -> None:
        shot = connection.shot
        self._drop(connection)
        if shot >= 0:
            self._open -= 1
            self._finish(shot, status, b"", b"")

    def _drop(self, connection: _Connection) -> None:
        self._by_fd.pop(connection.fd, None)
        if connection in self._idle:
            self._idle.remove(connection)
        connection.socket.close()

    def _expire(self, now: float) -> None:
        while self._expiries and self._expiries[0][0] <= now:
            _, shot, fd, generation = heapq.heappop(self._expiries)
            connection = self._by_fd.get(fd)
            if connection is None or connection.shot != shot or connection.generation != generation:
                continue
            self._drop(connection)
            self._open -= 1
            self._finish(shot, GAVE_UP, b"", b"")

    def _finish(self, shot: int, status: int, head: bytes, body: bytes) -> None:
        due = self._due[shot]
        self._results[shot] = Shot(due.at_s, self._sent[shot], self._now(), status, head, body, due.kind)
