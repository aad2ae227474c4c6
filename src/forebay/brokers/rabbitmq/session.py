"""Session: two connections, one to publish and one to receive: a server that is short of memory stops reading
from who publishes, and what was leased must be acknowledged all the same."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

from forebay.brokers.rabbitmq.address import Address, pika_module, told
from forebay.brokers.rabbitmq.alive import (
    ANSWER_MAX_S,
    RefusedQueueError,
    StuckQueueError,
    answered,
    closed,
    refusals,
    say_who,
)
from forebay.brokers.rabbitmq.line import Line
from forebay.errors import DeliveryUnavailableError, StoreVersionError

CONNECT_MAX_S: Final = 8.0
CONFIRM_MAX_S: Final = 4.0  # without one confirmation more of what was published
REMOVE_MAX_S: Final = 9.0  # a server gives up a queue that nobody answers for after 5 s
SERVER_MIN: Final = (3, 8)  # the oldest with quorum queues
LATE: Final = "it did not answer in time"
_QUORUM: Final = {"x-queue-type": "quorum"}
HINTS_MAX: Final = 1_000_000  # of one task; past it the oldest go, and are announced again
HINTS_BYTES_MAX: Final = 256 << 20  # anybody may send anything, of any size
_HINTS: Final = {"x-max-length": HINTS_MAX, "x-max-length-bytes": HINTS_BYTES_MAX, "x-overflow": "drop-head"}


class Session:
    """From its opening until one of its connections closes; then another one takes its place."""

    def __init__(self, address: Address, publishing: Any, receiving: Any) -> None:
        self._address = address
        self._publishing = publishing
        self._receiving = receiving
        # One for each queue: a channel waits for ever for one that answers nobody, also when it is made anew.
        self._channels: dict[str, Any] = {}
        self._channels_turn = asyncio.Lock()
        self._asking: Any = None  # channel for declarations
        self._made: set[str] = set()
        self._otherwise: set[str] = set()  # there already, with other arguments
        self._lines: dict[str, Line] = {}
        self._turn = asyncio.Lock()
        self.ended = False

    @classmethod
    async def open(cls, address: Address) -> "Session":
        """Connect. Raises DeliveryUnavailableError or StoreVersionError with one line."""
        publishing = receiving = None
        try:
            publishing = await connected(address)
            _check_server(address, publishing)
            receiving = await connected(address)
        except BaseException as error:
            for connection in (publishing, receiving):
                await closed(connection)
            raise _mapped(address, error) from None
        return cls(address, publishing, receiving)

    @property
    def usable(self) -> bool:
        """Whether both connections are open."""
        return not (self.ended or self._publishing.is_closed or self._receiving.is_closed)

    async def publish(self, queue: str, bodies: Sequence[bytes], **arguments: Any) -> None:
        """Publish, and return when the server has it on a majority of its disks. A queue that was removed is
        made again. Raises what the client raises."""
        pika = pika_module()
        for last in (False, True):
            await self.declare(queue, **arguments)
            try:
                await self._publish(queue, bodies)
            except pika.exceptions.PublishError:  # nobody has that queue
                self._made.discard(queue)
                if last:
                    raise
            else:
                return

    async def _publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        pika = pika_module()
        channel = await self._publishes(queue)
        mode, exchange = pika.DeliveryMode.PERSISTENT, channel.default_exchange
        messages = [
            pika.Message(body, content_type="application/json", delivery_mode=mode, type=queue)
            for body in bodies
        ]
        sent = [
            asyncio.ensure_future(exchange.publish(one, routing_key=queue, mandatory=True))
            for one in messages
        ]
        try:
            await self._confirmed(queue, sent)
        except StuckQueueError:
            if self._channels.get(queue) is channel:
                del self._channels[queue]
            await closed(channel)
            raise
        finally:
            for one in sent:
                one.cancel()
            outcomes = await asyncio.gather(*sent, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, refusals()):  # its channel is closed; what else was sent on it failed too
                raise RefusedQueueError(queue, outcome)
        for outcome in outcomes:
            if isinstance(outcome, pika.exceptions.DeliveryError) and not isinstance(
                outcome, pika.exceptions.PublishError
            ):
                raise StuckQueueError(queue)  # it was refused
            if isinstance(outcome, BaseException):
                raise outcome

    async def _publishes(self, queue: str) -> Any:
        async with self._channels_turn:
            channel = self._channels.get(queue)
            if channel is None or channel.is_closed:
                try:
                    async with asyncio.timeout(ANSWER_MAX_S):
                        channel = await self._publishing.channel(
                            publisher_confirms=True, on_return_raises=True
                        )
                except TimeoutError:  # the client waits until a blocked connection may publish again
                    await say_who(self._publishing, queue)
                self._channels[queue] = channel
        return channel

    async def _confirmed(self, queue: str, sent: Sequence[asyncio.Future[Any]]) -> None:
        """Return when the server has said of each what became of it. Raises what `say_who` raises."""
        left = set(sent)
        while left:
            before = len(left)
            _, left = await asyncio.wait(left, timeout=CONFIRM_MAX_S)
            if len(left) == before:
                await say_who(self._publishing, queue)

    async def declare(self, queue: str, *, again: bool = False, **arguments: Any) -> int:
        """Make a queue where it is not known to be there. Returns how many messages wait, if it was asked."""
        if queue in self._made and not again:
            return 0
        asked = {"durable": True, "arguments": {**_QUORUM, **(arguments or _HINTS)}}
        async with self._turn:
            waiting = await self._made_or_found(queue, asked)
        self._made.add(queue)
        return waiting

    async def _made_or_found(self, queue: str, asked: dict[str, Any]) -> int:
        """Make a queue. One that an operator, or a server with other settings, made otherwise stays so."""
        if queue in self._otherwise:
            with contextlib.suppress(RefusedQueueError):  # it is gone
                return await self._declare(queue, passive=True)
            self._otherwise.discard(queue)
        try:
            return await self._declare(queue, **asked)
        except RefusedQueueError as error:
            if not error.different:
                raise
            self._otherwise.add(queue)
            return await self._declare(queue, passive=True)

    async def _declare(self, queue: str, **asked: Any) -> int:
        try:
            async with answered(self._receiving, queue):
                channel = await self._asks()
                made = await channel.declare_queue(queue, **asked)
        except BaseException:
            asking, self._asking = self._asking, None  # it may wait for that queue for good
            await closed(asking)
            raise
        return int(made.declaration_result.message_count or 0)

    async def _asks(self) -> Any:
        if self._asking is None or self._asking.is_closed:
            self._asking = await self._receiving.channel(publisher_confirms=False)
        return self._asking

    async def remove(self, queue: str) -> None:
        """Remove a queue, where there is one."""
        async with self._turn:
            await removed(self._receiving, queue)
        self._made.discard(queue)

    async def line(self, task: str) -> Line:
        """Return what receives the hints of a task."""
        known = self._lines.get(task)
        if known is not None and not known.broken:
            return known
        queue = self._address.queue(task)
        await self.declare(queue, again=True)
        opened = await Line.open(self._receiving, queue)
        there = self._lines.get(task)
        if there is not None and there is not known and not there.broken:  # another verb was quicker
            await opened.leave()
            return there
        if there is not None:
            there.close()
        self._lines[task] = opened
        return opened

    def known_line(self, task: str) -> Line | None:
        """Return the same where it is open."""
        return self._lines.get(task)

    async def close(self) -> None:
        """Let go; the server has back what was held."""
        self.ended = True
        for line in self._lines.values():
            line.close()
        await asyncio.gather(closed(self._receiving), closed(self._publishing))


async def connected(address: Address) -> Any:
    """Return a connection. Raises what the client raises, and TimeoutError."""
    async with asyncio.timeout(CONNECT_MAX_S):
        return await pika_module().connect(address.url, timeout=CONNECT_MAX_S)


async def removed(connection: Any, queue: str) -> None:
    """Remove a queue, where there is one. Raises what the client raises, and TimeoutError."""
    async with asyncio.timeout(REMOVE_MAX_S):
        channel = await connection.channel(publisher_confirms=False)
        await channel.queue_delete(queue)
        await channel.close()


def _check_server(address: Address, connection: Any) -> None:
    about = connection.transport.connection.server_properties
    version = str(about.get("version", "0"))
    numbers = tuple(int(part) for part in version.partition("-")[0].split(".")[:2] if part.isdigit())
    if str(about.get("product", "")) == "RabbitMQ" and numbers < SERVER_MIN:
        oldest = ".".join(str(part) for part in SERVER_MIN)
        raise StoreVersionError(f"broker: {address.label}: RabbitMQ {version} is too old; {oldest} or newer")


def _mapped(address: Address, error: BaseException) -> BaseException:
    if isinstance(error, TimeoutError):
        return DeliveryUnavailableError(f"broker: {address.label}: {LATE}")
    if isinstance(error, StoreVersionError) or not isinstance(error, Exception):
        return error
    return DeliveryUnavailableError(f"broker: {address.label}: {told(error)}")
