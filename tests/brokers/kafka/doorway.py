"""Doorway: a TCP proxy before the broker that caps the version of Fetch, and cuts or stills what goes through.

Tansu 0.6 answers a fetch of a topic that was removed, in versions 13 and up, without the id of the topic;
librdkafka (2.16) follows a null pointer then and the process is gone. No broker of Apache's answers so. Up to
version 12 topics go by their names.
"""

import asyncio
import contextlib
import struct
import threading

FETCH, FETCH_VERSION_MAX = 1, 12
WAIT_MAX_S = 30.0


class Doorway:
    def __init__(self, port, to_port):
        self.port, self._to_port = port, to_port
        self.open = True  # False: bytes are kept back, connections stay
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._writers = set()
        self._server = self._do(asyncio.start_server(self._through, "127.0.0.1", port))

    def _do(self, what):
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(WAIT_MAX_S)

    async def _through(self, reader, writer):
        try:
            theirs = await asyncio.open_connection("127.0.0.1", self._to_port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, theirs[1]}
        await asyncio.gather(
            self._pump(reader, theirs[1]), self._first(theirs[0], writer), return_exceptions=True
        )
        self._writers -= {writer, theirs[1]}

    async def _first(self, reader, writer):
        """The first answer is the list of versions: its entries are six bytes and a tag."""
        try:
            size = await reader.readexactly(4)
            frame = bytearray(await reader.readexactly(struct.unpack(">i", size)[0]))
            count = frame[6] - 1
            for at in range(7, 7 + 7 * count, 7):
                key, _, most = struct.unpack_from(">hhh", frame, at)
                if key == FETCH:
                    struct.pack_into(">h", frame, at + 4, min(most, FETCH_VERSION_MAX))
            writer.write(size + frame)
        except (asyncio.IncompleteReadError, OSError):
            writer.close()
            return
        await self._pump(reader, writer)

    async def _pump(self, reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                while not self.open:
                    await asyncio.sleep(0.02)
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self):
        """Cut every connection."""

        async def cut():
            for writer in list(self._writers):
                writer.transport.abort()

        self._do(cut())

    def close(self):
        self.open = True

        async def close():
            self._server.close()
            while self._writers:
                for writer in list(self._writers):
                    writer.transport.abort()
                await asyncio.sleep(0.01)

        self._do(close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_MAX_S)
        self._loop.close()
