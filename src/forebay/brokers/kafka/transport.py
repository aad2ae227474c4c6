"""KafkaTransport: hints as messages of one topic for each task, read by one group for each task."""

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from typing import Final

from forebay.brokers.kafka.address import Address
from forebay.brokers.kafka.reading import Reader
from forebay.brokers.kafka.sending import Sender, TopicGoneError
from forebay.brokers.kafka.topics import Topics
from forebay.errors import DeliveryUnavailableError
from forebay.ports.transport import Hint, Traits

DELAYED_MAX: Final = 1_000  # hints kept away in memory; more come again at once
DELAY_MAX_S: Final = 60.0
AGAIN_S: Final = 2.0  # what could not be sent again is tried after so long
PROBE_MAX_S: Final = 2.0
END_MAX_S: Final = 2.0
CLOSED: Final = "the connection to Kafka is closed"

TRAITS: Final = Traits(
    name="Kafka protocol",
    counted=True,
    each=False,
    delays=True,
    durable=True,
    note="at most one server at a time reads a partition (12 for each task, `partitions=`); one that dies is "
    "noticed after 10 s; what is given back is sent again, after at most 60 s in the memory of the server",
)


class KafkaTransport:
    """One connection to a cluster. Topics and groups are made when they are first used."""

    traits = TRAITS

    def __init__(self, address: Address) -> None:
        self._address = address
        self._sender = Sender(address)
        self._topics = Topics(address, self._sender)
        self._readers: dict[str, Reader] = {}
        self._opening = asyncio.Lock()
        self._away: set[object] = set()  # tokens of hints that are kept away
        self._waiting: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()

    @classmethod
    async def open(cls, url: str) -> "KafkaTransport":
        """Return a connection when a broker answers; nothing is made. Raises ConfigError for a wrong URL or
        without the extra, DeliveryUnavailableError when no broker can be used."""
        transport = cls(Address.of(url))
        try:
            await transport._topics.look()
        except BaseException:
            await transport.close()
            raise
        return transport

    async def send(self, task: str, bodies: Sequence[bytes]) -> None:
        """Hand hints over; returns when all in-sync replicas have them."""
        self._check()
        await self._send(self._address.topic(task), bodies)

    async def bury(self, task: str, bodies: Sequence[bytes]) -> None:
        """Write dead letters to the topic that ends in `--dead`; the broker keeps them for the retention."""
        self._check()
        await self._send(self._address.dead_topic(task), bodies, partitions=1)

    async def _send(self, topic: str, bodies: Sequence[bytes], *, partitions: int | None = None) -> None:
        await self._topics.make(topic, partitions=partitions)
        try:
            await self._sender.send(topic, bodies)
        except TopicGoneError:
            self._topics.gone(topic)
            await self._topics.make(topic, partitions=partitions)
            await self._sender.send(topic, bodies)

    async def receive(self, task: str, *, limit: int, wait_s: float) -> list[Hint]:
        """Return hints; the first call for a task waits up to 10 s for a place in its group."""
        self._check()
        reader = await self._reader(task)
        hints = await reader.receive(limit, wait_s)
        if not hints:
            self._check()
            await self._look_after(task, reader)
        return hints

    async def _reader(self, task: str) -> Reader:
        reader = self._readers.get(task)
        if reader is not None and reader.ended is None:
            return reader
        async with self._opening:
            self._check()
            reader = self._readers.get(task)
            if reader is None or reader.ended is not None:
                topic = self._address.topic(task)
                if reader is not None and reader.gone:
                    self._topics.gone(topic)
                await self._topics.make(topic)
                self._check()
                reader = self._readers[task] = Reader(self._address, topic)
        return reader

    async def _look_after(self, task: str, reader: Reader) -> None:
        """Nothing came: say so when that is because nothing can come."""
        if reader.ended:
            raise DeliveryUnavailableError(f"{self._address.label}: {task}: {reader.ended}")
        if reader.down:
            await self._topics.look(PROBE_MAX_S)
            reader.down = False

    async def ack(self, task: str, hints: Sequence[Hint]) -> None:
        """Note that hints are done; the brokers hear of it within half a second, or when they are back."""
        self._check()
        self._done(task, hints)

    def _done(self, task: str, hints: Sequence[Hint]) -> None:
        reader = self._readers.get(task)
        if reader is not None:
            reader.done(hints)

    async def give_back(self, task: str, hints: Sequence[Hint], *, delay_s: float) -> None:
        """Send hints again and be done with them, now or after a while in memory. What cannot be sent stays
        held and is tried again, and comes to others when this connection ends first."""
        self._check()
        held = [hint for hint in self._held(task, hints) if hint.token not in self._away]
        room = DELAYED_MAX - len(self._away) if delay_s > 0 else 0
        self._later(task, held[:room], min(delay_s, DELAY_MAX_S))
        now = held[room:]
        if not now:
            return
        try:
            await self._send(self._address.topic(task), [hint.body for hint in now])
        except BaseException:
            self._later(task, now, AGAIN_S)
            raise
        self._done(task, now)

    def _held(self, task: str, hints: Sequence[Hint]) -> list[Hint]:
        reader = self._readers.get(task)
        return [] if reader is None else [hint for hint in hints if reader.holds(hint.token)]

    def _later(self, task: str, hints: Sequence[Hint], delay_s: float) -> None:
        if hints and not self._closed:
            self._away |= {hint.token for hint in hints}
            waiting = asyncio.ensure_future(self._again(task, hints, delay_s))
            self._waiting.add(waiting)
            waiting.add_done_callback(self._waiting.discard)

    async def _again(self, task: str, hints: Sequence[Hint], delay_s: float) -> None:
        """Send hints again after a while, until that is done or they are not ours any more."""
        try:
            while not await self._ends_within(delay_s) and (held := self._held(task, hints)):
                with contextlib.suppress(DeliveryUnavailableError):
                    await self._send(self._address.topic(task), [hint.body for hint in held])
                    self._done(task, held)
                    return
                delay_s = AGAIN_S
        finally:
            self._away -= {hint.token for hint in hints}

    async def _ends_within(self, wait_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                return await self._ending.wait()
        return False

    async def depth(self, task: str) -> int | None:
        """Return how many messages of the topic its group has not read or not committed."""
        self._check()
        topic = self._address.topic(task)
        return await self._topics.depth(topic, topic)

    async def forget(self, task: str) -> None:
        """Remove both topics of a task and the place of its group."""
        self._check()
        reader = self._readers.pop(task, None)
        if reader is not None:
            await reader.close()
        topic = self._address.topic(task)
        await self._topics.remove(topic, topic)
        await self._topics.remove(self._address.dead_topic(task), None)

    async def close(self) -> None:
        """Leave all groups, so that what is held comes to others, and let go of everything."""
        if self._ending.is_set():
            return
        self._ending.set()
        await asyncio.gather(*self._waiting)
        await asyncio.gather(*(reader.close() for reader in self._readers.values()))
        await asyncio.to_thread(self._sender.close)
        # A client may wait long for brokers that are away: the end of a process does not wait for it.
        ending = threading.Thread(target=self._topics.close, name="forebay-kafka-end", daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, END_MAX_S)

    @property
    def _closed(self) -> bool:
        return self._ending.is_set()

    def _check(self) -> None:
        if self._closed:
            raise DeliveryUnavailableError(CLOSED)
