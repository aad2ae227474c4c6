"""Reader: one member of the group that reads a task's topic, in a thread that polls whatever else happens."""

import asyncio
import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from forebay.brokers.kafka.address import Address, kafka_module, told
from forebay.brokers.kafka.places import Place
from forebay.brokers.kafka.sending import common, gone_codes
from forebay.ports.transport import BODY_MAX, Hint

LOOK_S: Final = 0.1
BATCH_MAX: Final = 100
BUFFER_MAX: Final = 1_000  # hints that came and were not asked for yet; then the partitions are paused
SPAN_MAX: Final = 10_000  # offsets remembered from the lowest hint that is held; then they are paused too
JOIN_MAX_S: Final = 10.0  # for the first place in the group
IDLE_MAX_S: Final = 30.0  # nobody asked for so long, and nothing is held: others may have the partitions
SESSION_S: Final = 10.0  # a member that is silent for so long is dead
COMMIT_EVERY_S: Final = 0.5
CLOSE_MAX_S: Final = 5.0
CLOSE_UNJOINED_MAX_S: Final = 0.5  # before it has a place nothing is held: nobody has to wait for its end

_epochs: Final = itertools.count(1)


class Token(NamedTuple):
    """Where a hint came from, and in which time of ours."""

    epoch: int
    partition: int
    offset: int


class Reader:
    """One consumer. Hints are handed out by `receive` in the event loop; everything else is the thread's."""

    def __init__(self, address: Address, topic: str) -> None:
        self._kafka = kafka_module()
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._lock = threading.Lock()
        self._buffer: deque[Hint] = deque()
        self._places: dict[int, Place] = {}
        self._told: dict[int, int] = {}  # what the client was given to commit
        self._asking = 0
        self._asked_at = self._loop.time()
        self._until = self._asked_at + JOIN_MAX_S
        self._paused = False
        self._closing = threading.Event()
        self.joined = False
        self.down = False  # no broker was reached lately
        self.ended: str | None = None  # why no more comes; "" when it was closed or left
        self.gone = False  # because somebody removed the topic
        self._settings = {
            **common(address),
            "error_cb": self._hear,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,  # what may be committed is said hint by hint
            "enable.auto.commit": True,  # every so often, at a rebalance and at the end
            "auto.commit.interval.ms": int(COMMIT_EVERY_S * 1000),
            "session.timeout.ms": int(SESSION_S * 1000),
            "heartbeat.interval.ms": int(SESSION_S * 1000 / 5),
            "queued.max.messages.kbytes": 4_096,
            "queued.min.messages": BUFFER_MAX,
            "fetch.error.backoff.ms": 200,
        }
        self._thread = threading.Thread(target=self._run, name=f"forebay-kafka-{topic}"[:60], daemon=True)
        self._thread.start()

    async def receive(self, limit: int, wait_s: float) -> list[Hint]:
        """Return hints as soon as there are some; none after the wait, or when the reader has ended."""
        until = self._loop.time() + wait_s
        self._asking += 1
        try:
            while True:
                self._changed.clear()
                if hints := self._take(limit):
                    return hints
                ends_at = until if self.joined else max(until, self._until)
                if self.ended is not None or self._loop.time() >= ends_at or (self.down and not self.joined):
                    return []
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(ends_at):
                        await self._changed.wait()
        finally:
            self._asking -= 1
            self._asked_at = self._loop.time()

    def _take(self, limit: int) -> list[Hint]:
        with self._lock:
            return [self._buffer.popleft() for _ in range(min(limit, len(self._buffer)))]

    def holds(self, token: object) -> bool:
        """Return whether a hint is still ours."""
        with self._lock:
            return self._place_of(token) is not None

    def done(self, hints: Sequence[Hint]) -> None:
        """Note that hints are done; those that are not held any more are passed over."""
        with self._lock:
            for hint in hints:
                place = self._place_of(hint.token)
                if place is not None:
                    place.done(hint.token.offset)  # type: ignore[attr-defined]

    def _place_of(self, token: object) -> Place | None:
        if not isinstance(token, Token):
            return None
        place = self._places.get(token.partition)
        return place if place and place.epoch == token.epoch and place.holds(token.offset) else None

    async def close(self) -> None:
        """Commit what is done and leave the group, so that what is held comes to others. Returns after a
        while in any case: a client may wait long for brokers that are away."""
        self._closing.set()
        await asyncio.to_thread(self._thread.join, CLOSE_MAX_S if self.joined else CLOSE_UNJOINED_MAX_S)

    # ---- in the thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        ended = ""
        try:
            consumer = self._kafka.Consumer(self._settings)
            try:
                consumer.subscribe(
                    [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
                )
                ended = self._read(consumer)
            finally:
                with contextlib.suppress(self._kafka.KafkaException):
                    self._keep(consumer)
                self._end(ended)  # before the close, which may take its time
                consumer.close()
        except (self._kafka.KafkaException, RuntimeError, ValueError) as error:
            ended = told(error)
        finally:
            self._end(ended)

    def _end(self, why: str) -> None:
        with self._lock:
            self._buffer.clear()
            if self.ended is None:
                self.ended = why
        self._ring()

    def _read(self, consumer: Any) -> str:
        """Return why it ends; "" when it was told to, or nobody asks any more."""
        while not self._closing.is_set() and not self._idle():
            self._keep(consumer)
            self._pause(consumer)
            message = consumer.poll(LOOK_S)
            if message is None:
                continue
            for one in [message, *consumer.consume(BATCH_MAX - 1, timeout=0)]:
                if (error := one.error()) is None:
                    self._note(one)
                elif why := self._why_ends(error):
                    return why
            self._ring()
        return ""

    def _idle(self) -> bool:
        if self._asking or self._loop.time() - self._asked_at < IDLE_MAX_S:
            return False
        with self._lock:
            return sum(place.open for place in self._places.values()) == len(self._buffer)

    def _keep(self, consumer: Any) -> None:
        """Tell the client how far it may commit."""
        with self._lock:
            far = {number: place.committable for number, place in self._places.items()}
            new = {
                number: at for number, at in far.items() if at is not None and self._told.get(number) != at
            }
            self._told |= new
        for number, at in new.items():
            with contextlib.suppress(self._kafka.KafkaException):  # it was lost a moment ago
                consumer.store_offsets(offsets=[self._kafka.TopicPartition(self._topic, number, at)])

    def _pause(self, consumer: Any) -> None:
        """Polling goes on, since who does not poll is thrown out of the group; what comes has an end."""
        with self._lock:
            waiting, span = len(self._buffer), sum(place.span for place in self._places.values())
        full = waiting >= BUFFER_MAX or span >= SPAN_MAX
        room = waiting <= BUFFER_MAX // 2 and span < SPAN_MAX
        if full and not self._paused:
            consumer.pause(consumer.assignment())
            self._paused = True
        elif room and self._paused:
            consumer.resume(consumer.assignment())
            self._paused = False

    def _note(self, message: Any) -> None:
        number, offset = message.partition(), message.offset()
        self.down = False
        with self._lock:
            place = self._places.get(number)
            if place is None:
                return  # revoked meanwhile: its new owner has it
            if not place.came(offset):
                self._drop(number)
                place = self._places[number] = Place(next(_epochs))
                place.came(offset)
            # A longer one is not ours; what is kept of it has a bound, and nobody takes it for a hint.
            body = (message.value() or b"")[: BODY_MAX + 1]
            self._buffer.append(Hint(body, Token(place.epoch, number, offset)))

    def _why_ends(self, error: Any) -> str:
        code, errors = error.code(), self._kafka.KafkaError
        self.gone = self.gone or code in gone_codes(self._kafka)
        forbidden = (errors.TOPIC_AUTHORIZATION_FAILED, errors.GROUP_AUTHORIZATION_FAILED)
        if self.gone or code in forbidden or error.fatal():
            return told(error)
        self._hear(error)
        return ""

    def _hear(self, error: Any) -> None:
        if error.code() == self._kafka.KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its public name
            self.down = True
            self._ring()

    def _assigned(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        with self._lock:
            for one in partitions:
                self._places[one.partition] = Place(next(_epochs))
                self._told.pop(one.partition, None)
        self._paused = False
        self.joined = True
        self._ring()

    def _revoked(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._keep(consumer)
        self._lost(consumer, partitions)

    def _lost(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        with self._lock:
            for one in partitions:
                self._drop(one.partition)

    def _drop(self, number: int) -> None:
        self._places.pop(number, None)
        self._told.pop(number, None)
        kept = [hint for hint in self._buffer if hint.token.partition != number]  # type: ignore[attr-defined]
        self._buffer = deque(kept)

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._changed.set)
