"""Event streams in tests: a real connection, read as a browser would."""

import asyncio
import contextlib
import json
import socket

from forebay.core.job import Lease
from tests.server.doors import WAIT_MAX_S


class Stream:
    """One GET or POST that is answered with events."""

    def __init__(self, reader, writer):
        self._reader = reader
        self._writer = writer
        self.status = 0
        self.headers = {}
        self.body = b""
        self.events = []  # (kind, id, data) as they came
        self.comments = []
        self.retries = []
        self._rest = b""
        self.ended = False

    async def shut(self):
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def begin(self):
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.status = int(head[0].split()[1])
        self.headers = dict(line.split(": ", 1) for line in head[1:] if line)
        return self

    async def next(self, kind=None, within_s=WAIT_MAX_S):
        """Return the next event, or the next of this kind, as (kind, id, data)."""
        async with asyncio.timeout(within_s):
            while True:
                while b"\n\n" in self._rest:
                    block, _, self._rest = self._rest.partition(b"\n\n")
                    event = self._read(block.decode())
                    if event is not None and kind in {None, event[0]}:
                        return event
                if not await self._more():
                    raise EOFError(f"the stream ended, after {self.events}")

    async def rest(self, within_s=WAIT_MAX_S):
        """Read to the end of the stream; return all events."""
        with contextlib.suppress(EOFError):
            while True:
                await self.next(within_s=within_s)
        return self.events

    async def commented(self, count):
        """Read until so many comments have come."""
        async with asyncio.timeout(WAIT_MAX_S):
            while len(self.comments) < count:
                if b"\n\n" in self._rest:
                    block, _, self._rest = self._rest.partition(b"\n\n")
                    self._read(block.decode())
                elif not await self._more():
                    raise EOFError(f"the stream ended, after {self.events}")

    def kinds(self):
        return [kind for kind, _, _ in self.events]

    def parts(self):
        """Return the parts in order, as a reader keeps them."""
        parts = []
        for kind, _, data in self.events:
            if kind == "restart":
                parts = []
            elif kind == "partial":
                assert data["index"] == len(parts), self.events
                parts += data["parts"]
        return parts

    def close(self):
        self._writer.close()

    async def _more(self):
        if self.ended:
            return False
        size = int((await self._reader.readline()).strip() or b"0", 16)
        piece = await self._reader.readexactly(size)
        await self._reader.readline()
        self.ended = size == 0
        self._rest += piece
        return not self.ended

    def _read(self, block):
        fields = {}
        for line in block.split("\n"):
            if line.startswith(":"):
                self.comments.append(line)
                continue
            name, _, value = line.partition(": ")
            fields[name] = value
        if "retry" in fields:
            self.retries.append(int(fields["retry"]))
        if "event" not in fields:
            return None
        event = (fields["event"], fields.get("id"), json.loads(fields["data"]))
        self.events.append(event)
        return event


_open = []  # streams of the running test


@contextlib.asynccontextmanager
async def all_closed():
    """Close at the end whatever a test opened."""
    try:
        yield
    finally:
        for stream in _open:
            await stream.shut()
        _open.clear()


async def opened(port, path, *, last_id=None, method="GET", body=None, headers=()):
    """Send a request and read the head of its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", *headers]
    if last_id is not None:
        lines.append(f"last-event-id: {last_id}")
    if body is not None:
        lines += [f"content-length: {len(body)}", "content-type: application/json"]
    writer.write("\r\n".join([*lines, "", ""]).encode() + (body or b""))
    stream = Stream(reader, writer)
    _open.append(stream)
    return await stream.begin()


async def watching(port, job_id, last_id=None):
    """Open the events of a job."""
    stream = await opened(port, f"/v1/jobs/{job_id}/events", last_id=last_id)
    assert stream.status == 200, stream.status
    return stream


def yielded(hub, lease: Lease, *texts, number=0):
    """Say that the holder of a lease yielded these parts."""
    hub.parts(lease, number, [json.dumps(text).encode() for text in texts])


def deaf(port, job_id):
    """Return a connection that asked for the events of a job and never reads."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    connection.sendall(f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
    return connection
