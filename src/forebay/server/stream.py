"""A stream of lines in, a stream of verdicts out: the two ends of a bulk request, both bounded."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

from forebay.server.answer import NO_STORE, Send
from forebay.server.limits import ANSWER_TIMEOUT_S, ANSWERS_HELD_BYTES_MAX, CHUNKS_IN_FLIGHT_MAX
from forebay.server.problems import ClientGoneError


class Lines:
    """Cuts a stream of bytes into lines, numbered from 1; a line above the limit is dropped as it comes."""

    __slots__ = ("_limit", "_parts", "_size", "count", "size_b")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self.count = 0
        self.size_b = 0

    def feed(self, part: bytes) -> list[bytes | None]:
        """Return the lines that are whole now; None stands for one that was too large."""
        self.size_b += len(part)
        pieces: list[bytes | None] = [*part.split(b"\n")]
        last = pieces.pop()
        if pieces and self._size:
            self._hold(pieces[0])
            pieces[0] = self._whole()
        if len(part) > self._limit:
            pieces = [None if piece is None or len(piece) > self._limit else piece for piece in pieces]
        self._hold(last)
        self.count += len(pieces)
        return pieces

    def rest(self) -> list[bytes | None]:
        """Return the last line when it has no line end."""
        if not self._size:
            return []
        self.count += 1
        return [self._whole()]

    def _hold(self, piece: bytes | None) -> None:
        assert piece is not None
        self._size += len(piece)
        if self._size <= self._limit:
            self._parts.append(piece)
        else:
            self._parts.clear()

    def _whole(self) -> bytes | None:
        line = None if self._size > self._limit else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return line


class Verdicts:
    """The answer of a bulk request: what is ready is sent by a task of its own, in order, bounded."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._ready: list[bytes] = []
        self._held_b = 0
        self._finished = False
        self._wake = asyncio.Event()
        self._sent = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.cut_short = False

    @property
    def empty(self) -> bool:
        """Whether there was no verdict at all."""
        return self._task is None

    def put(self, text: bytes) -> None:
        """Add verdicts; they leave as soon as the client takes them."""
        self._ready.append(text)
        self._held_b += len(text)
        self._wake.set()
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    async def room(self) -> None:
        """Wait for the client to read when too much is held for it.

        Raises ClientGoneError when it reads nothing for ANSWER_TIMEOUT_S.
        """
        while self._held_b > ANSWERS_HELD_BYTES_MAX:
            self._sent.clear()
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    await self._sent.wait()
            except TimeoutError:
                raise ClientGoneError from None

    async def finish(self) -> None:
        """Send what is left and end the answer. Raises ClientGoneError when nobody reads it."""
        self._finished = True
        self._wake.set()
        if self._task is not None:
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    await self._task
            except TimeoutError:
                raise ClientGoneError from None

    def abandon(self) -> None:
        """Stop sending."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        headers = [(b"content-type", b"application/x-ndjson"), NO_STORE]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        while not (self._finished and not self._ready):
            await self._wake.wait()
            self._wake.clear()
            text, self._ready = b"".join(self._ready), []
            if text:
                await self._send({"type": "http.response.body", "body": text, "more_body": True})
                self._held_b -= len(text)
                self._sent.set()
        await self._send({"type": "http.response.body", "body": b""})


_LEFT: set["asyncio.Task[bytes]"] = set()  # a loop holds its tasks weakly


class Flights:
    """Groups on their way to the disk; their verdicts are taken in the order of the groups."""

    def __init__(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts
        self._tasks: deque[asyncio.Task[bytes]] = deque()
        self._change = asyncio.Event()
        self._failure: BaseException | None = None

    @property
    def room(self) -> bool:
        """Whether another group may start."""
        return len(self._tasks) < CHUNKS_IN_FLIGHT_MAX

    def start(self, group: Coroutine[Any, Any, bytes]) -> None:
        """Start one."""
        task = asyncio.ensure_future(group)
        self._tasks.append(task)
        task.add_done_callback(self._land)

    async def landed(self, left: int) -> None:
        """Return when at most `left` are on their way. Raises what one of them raised."""
        while len(self._tasks) > left:
            self._change.clear()
            await self._change.wait()
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """Stop waiting. What is on its way goes on: a write that was begun is not broken off."""
        for task in self._tasks:
            _LEFT.add(task)
            task.add_done_callback(_LEFT.discard)

    def _land(self, _: "asyncio.Task[bytes]") -> None:
        tasks = self._tasks
        while tasks and tasks[0].done():
            task = tasks.popleft()
            if task.cancelled():
                continue
            self._failure = self._failure or task.exception()
            if self._failure is None:
                self._verdicts.put(task.result())
        self._change.set()
