"""Wire: a TCP connection that a test can cut, slow down, or let go dead without a word, both ways or one."""

import asyncio
import contextlib
import socket
import struct


class Wire:
    """Forwards what connects to `port` to a port of this machine, in the loop that entered it."""

    def __init__(self, to):
        self.to = to
        self.port = 0
        self.opened = 0
        self.delay_s = 0.0  # what arrives is carried so much later
        self._live = self._flowing()
        self._heard = self._flowing()  # what comes back
        self._pairs = set()
        self._tasks = set()
        self._server = None

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self):
        """Reset every connection."""
        for writer in list(self._pairs):
            raw = writer.transport.get_extra_info("socket")
            with contextlib.suppress(OSError, AttributeError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self._pairs.clear()

    def silence(self, *, new=True):
        """Carry nothing any more, and say nothing of it; without `new` what connects later is carried."""
        self._live.clear()
        if not new:
            self._live = self._flowing()

    def deafen(self, *, new=True):
        """Carry there what comes, and nothing back; without `new` what connects later is carried."""
        self._heard.clear()
        if not new:
            self._heard = self._flowing()

    def heal(self):
        """Carry what comes, and what was held back."""
        self._live.set()
        self._heard.set()

    def _flowing(self):
        live = asyncio.Event()
        live.set()
        return live

    async def _accepted(self, reader, writer):
        self.opened += 1
        self._tasks.add(asyncio.current_task())
        self._pairs.add(writer)
        live, heard = self._live, self._heard
        with contextlib.suppress(OSError, asyncio.CancelledError):  # the end of a test cancels
            await live.wait()
            there, back = await asyncio.open_connection("127.0.0.1", self.to)
            self._pairs.add(back)
            await asyncio.gather(self._carry(reader, back, live), self._carry(there, writer, live, heard))

    async def _carry(self, reader, writer, *flows):
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                await asyncio.sleep(self.delay_s)
                for flow in flows:
                    await flow.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
