"""An HTTP upstream for tests that answers byte for byte what a test wants, on loopback, in the same loop."""

import asyncio
import contextlib


class Asked:
    """One request as it came."""

    def __init__(self, head, body):
        line, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = line.split(" ")
        self.headers = {
            name.lower(): value for name, _, value in (one.partition(": ") for one in lines if one)
        }
        self.body = body


class Upstream:
    """`answer(asked, writer)` writes what it likes; `requests` are all that came."""

    def __init__(self, answer):
        self.answer = answer
        self.requests = []
        self.open = 0
        self.open_most = 0
        self.connections = 0
        self.url = ""

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(dict_of(head).get("content-length", 0))
                asked = Asked(head.removesuffix(b"\r\n\r\n"), await reader.readexactly(length))
                self.requests.append(asked)
                self.open += 1
                self.open_most = max(self.open_most, self.open)
                try:
                    await self.answer(asked, writer)
                finally:
                    self.open -= 1
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            with contextlib.suppress(Exception):
                writer.close()


def dict_of(head):
    pairs = (line.partition(": ") for line in head.decode("latin-1").split("\r\n")[1:] if line)
    return {name.lower(): value for name, _, value in pairs}


@contextlib.asynccontextmanager
async def upstream(answer, host="127.0.0.1"):
    """Serve; yields the Upstream with its `url`."""
    served = Upstream(answer)
    tasks = set()

    async def connected(reader, writer):
        task = asyncio.current_task()
        tasks.add(task)
        try:
            await served.serve(reader, writer)
        except asyncio.CancelledError:
            return
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(connected, host, 0)
    served.url = f"http://{host}:{server.sockets[0].getsockname()[1]}/v1/do?x=1"
    try:
        yield served
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5.0)


def whole(body, status="200 OK", kind="application/json", **headers):
    """Return the bytes of a plain answer."""
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(kind):
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def says(data):
    """Return an answer function that writes these bytes each time."""

    async def answer(asked, writer):
        writer.write(data)

    return answer
