"""Line: one task's messages: a consumer while somebody asks, and a little longer."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from forebay.brokers.rabbitmq.alive import ANSWER_MAX_S, answered, closed

PREFETCH_MAX: Final = 64  # messages of a task that this process has and has not acknowledged
LINGER_S: Final = 1.0  # a consumer that nobody asks for so long gives back what it has
SLICE_S: Final = 1.0  # a waiting receiver looks so often whether its consumer is still there
BROKEN_CHANNEL_MAX_S: Final = 2.0
# A quorum queue that is removed and made again at once may take this consumer for its own and bring it
# nothing for good; who hears nothing for so long asks anew, and what was on its way to nowhere comes again.
SILENT_MAX_S: Final = 5.0

Message = Any  # aio_pika.IncomingMessage


class Line:
    """On a channel of its own, so that what closes it harms no other task."""

    def __init__(self, connection: Any, channel: Any, queue: Any) -> None:
        self._connection = connection
        self._channel = channel
        self._queue = queue
        self._heard_at = _time()
        self._tag: str | None = None
        self._fresh: deque[Message] = deque()
        self._came = asyncio.Event()
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()
        self._ops: set[asyncio.Task[None]] = set()
        self._kept: dict[int, asyncio.TimerHandle] = {}  # by delivery tag: given back later
        self.held: dict[int, Message] = {}

    @classmethod
    async def open(cls, connection: Any, name: str) -> "Line":
        """Open a channel for a queue that is there. Raises what the client raises."""
        return cls(connection, *await _opened(connection, name))

    @property
    def broken(self) -> bool:
        """Whether its channel is closed."""
        return bool(self._channel.is_closed)

    @property
    def here(self) -> int:
        """How many messages this process has."""
        return len(self._fresh) + len(self.held)

    async def take(self, limit: int, wait_s: float) -> list[Message]:
        """Return messages, none after `wait_s` or when the channel was closed."""
        ends_at = _time() + wait_s
        self._waiting += 1
        try:
            while not self._fresh:
                await self._consume()
                left_s = ends_at - _time()
                if left_s <= 0 or self.broken:
                    break
                if _time() - self._heard_at > SILENT_MAX_S:
                    await self._renew()
                    continue
                self._came.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, SLICE_S)):
                        await self._came.wait()
        finally:
            self._waiting -= 1
            self._linger()
        taken = [self._fresh.popleft() for _ in range(min(limit, len(self._fresh)))]
        for message in taken:
            self.held[message.delivery_tag] = message
        return taken

    async def ack(self, message: Message) -> None:
        """Be done with a message that is held."""
        if self._let_go(message):
            with contextlib.suppress(_closed_channel()):  # the server has it back
                await message.ack()

    async def back(self, message: Message) -> None:
        """Let the server have a message that is held."""
        if self._let_go(message):
            with contextlib.suppress(_closed_channel()):
                await message.nack(requeue=True)

    def _let_go(self, message: Message) -> bool:
        if not self.holds(message):
            return False
        del self.held[message.delivery_tag]
        return not self.broken

    def holds(self, message: Message) -> bool:
        """Return whether a message is held; not one of a channel that is gone."""
        return self.held.get(message.delivery_tag) is message

    def keep(self, message: Message, delay_s: float, done: Callable[[], None]) -> None:
        """Call `done` for a message that is held, after a while."""
        loop = asyncio.get_running_loop()
        self._kept[message.delivery_tag] = loop.call_later(delay_s, done)

    def close(self) -> None:
        """Forget everything: the connection goes."""
        if self._timer is not None:
            self._timer.cancel()
        for timer in self._kept.values():
            timer.cancel()
        for op in self._ops:
            op.cancel()
        self.held.clear()
        self._fresh.clear()
        self._came.set()

    async def leave(self) -> None:
        """Let the server have back what there is: nobody uses this line."""
        self.close()
        await closed(self._channel)

    async def _consume(self) -> None:
        async with self._turn:
            if self._tag is not None:
                underlay = await self._channel.get_underlay_channel()
                if self._tag in underlay.consumers:
                    return
                self._tag = None  # its queue was removed: the next line makes it again
                await closed(self._channel)
                return
            self._heard_at = _time()
            hears = partial(self._on_message, self._channel)
            try:
                async with answered(self._connection, self._queue.name):
                    self._tag = await self._queue.consume(hears)
            except BaseException:
                await closed(self._channel)  # it may consume, and nobody here would know its tag
                raise

    async def _renew(self) -> None:
        """Consume on another channel; the server has back what was held on the old one."""
        async with self._turn:
            self._heard_at = _time()
            if self._fresh or self.broken:
                return
            channel, queue = await _opened(self._connection, self._queue.name)
            if self._fresh or self.broken:  # meanwhile something came
                await closed(channel)
                return
            for timer in self._kept.values():
                timer.cancel()
            self._kept.clear()
            self.held.clear()
            old, self._tag = self._channel, None
            self._channel, self._queue = channel, queue
            async with answered(self._connection, self._queue.name):
                await old.close()

    async def _on_message(self, channel: Any, message: Message) -> None:
        if channel is not self._channel:  # it was left a moment ago: the server has this back
            return
        self._heard_at = _time()
        self._fresh.append(message)
        self._came.set()

    def _linger(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._waiting:
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._rest)

    def _rest(self) -> None:
        op = asyncio.ensure_future(self._stop_consuming())
        self._ops.add(op)
        op.add_done_callback(self._ops.discard)

    async def _stop_consuming(self) -> None:
        """Let others have what nobody here asked for."""
        async with self._turn:
            if self._waiting or self._tag is None or self.broken:
                return
            tag, self._tag = self._tag, None
            try:
                async with asyncio.timeout(BROKEN_CHANNEL_MAX_S):
                    await self._queue.cancel(tag)
                    while self._fresh:
                        await self._fresh.popleft().nack(requeue=True)
            except Exception:  # whatever it is: with its channel the server has all of it back
                self._fresh.clear()
                await closed(self._channel)


async def _opened(connection: Any, name: str) -> tuple[Any, Any]:
    """Return a new channel and a queue on it. Raises what the client raises."""
    async with asyncio.timeout(ANSWER_MAX_S):  # no queue is asked: it is the connection that does not answer
        channel = await connection.channel(publisher_confirms=False)
        await channel.set_qos(prefetch_count=PREFETCH_MAX)
        return channel, await channel.get_queue(name, ensure=False)


def _closed_channel() -> type[Exception]:
    """Return what the client raises for a channel that closes, or is closed."""
    from aiormq.exceptions import ChannelInvalidStateError

    return ChannelInvalidStateError


def _time() -> float:
    return asyncio.get_running_loop().time()
