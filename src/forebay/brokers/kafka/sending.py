"""Sender: hands messages to the brokers, and returns when all replicas that must have them do."""

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from typing import Any, Final

from forebay.brokers.kafka.address import Address, kafka_module, told
from forebay.errors import ConfigError, DeliveryUnavailableError

SEND_MAX_S: Final = 10.0  # for the brokers to confirm, with all tries of the client
WAITING_MAX: Final = 20_000  # messages that the client holds
LOOK_S: Final = 0.2
FLUSH_MAX_S: Final = 2.0


class TopicGoneError(DeliveryUnavailableError):
    """The topic was removed."""


class Sender:
    """One client with a thread that hears of what was confirmed. `says` is the last error it told of."""

    def __init__(self, address: Address) -> None:
        self._kafka = kafka_module()
        self._label = address.label
        self.says = ""
        self._closing = threading.Event()
        settings = {
            **common(address),
            "error_cb": self._hear,
            "acks": "all",
            # Hints may come twice and in any order: what the idempotent producer costs would buy nothing.
            "enable.idempotence": False,
            "linger.ms": 2,
            "sticky.partitioning.linger.ms": 0,  # each to any partition, so that all receivers get some
            "message.timeout.ms": int(SEND_MAX_S * 1000),
            "topic.metadata.propagation.max.ms": 5_000,
            "queue.buffering.max.messages": WAITING_MAX,
        }
        try:
            self._producer: Any = self._kafka.Producer(settings)
        except (self._kafka.KafkaException, ValueError, TypeError) as error:
            raise ConfigError(f"broker: {self._label}: {told(error)}") from None
        self._thread = threading.Thread(target=self._listen, name="forebay-kafka-sender", daemon=True)
        self._thread.start()

    def _hear(self, error: Any) -> None:
        if error.code() != self._kafka.KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its public name
            self.says = told(error)

    def _listen(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(LOOK_S)

    def topics(self, topic: str, timeout_s: float) -> Any:
        """Return what the brokers say of a topic. Blocks. Raises KafkaException."""
        return self._producer.list_topics(topic, timeout_s)

    async def send(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Return when the brokers have all. Raises DeliveryUnavailableError; some may have been sent then.
        TopicGoneError: the topic must be made first."""
        if not bodies:
            return
        loop = asyncio.get_running_loop()
        confirmed = _Confirmed(loop, len(bodies))
        for body in bodies:
            try:
                self._producer.produce(topic, body, on_delivery=confirmed.hear)
            except BufferError:
                raise DeliveryUnavailableError(
                    f"{self._label}: {WAITING_MAX} messages wait for the brokers: {self.says}"
                ) from None
            except self._kafka.KafkaException as error:
                raise DeliveryUnavailableError(f"{self._label}: {told(error)}") from None
        try:
            async with asyncio.timeout(SEND_MAX_S + 2.0):
                refused = await confirmed.future
        except TimeoutError:
            raise self._refused("not confirmed in time") from None
        if refused is not None:
            raise self._refused(told(refused), gone=refused.code() in gone_codes(self._kafka))

    def _refused(self, why: str, *, gone: bool = False) -> DeliveryUnavailableError:
        text = f"{self._label}: {why}" + (f" ({self.says})" if self.says else "")
        return TopicGoneError(text) if gone else DeliveryUnavailableError(text)

    def close(self) -> None:
        """Wait a little for what is under way, and end. Blocks."""
        self._producer.flush(FLUSH_MAX_S)
        self._closing.set()
        self._thread.join(FLUSH_MAX_S)


class _Confirmed:
    """A future of the first error, or of None when all were confirmed; heard in another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, left: int) -> None:
        self._loop, self._left = loop, left
        self._error: Any = None
        self.future: asyncio.Future[Any] = loop.create_future()

    def hear(self, error: Any, _message: Any) -> None:
        self._left -= 1
        self._error = self._error or error
        if not self._left:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if not self.future.done():
            self.future.set_result(self._error)


def common(address: Address) -> dict[str, Any]:
    """Return the settings of every client: where, as whom, and that it is quiet and does not try for ever."""
    return {
        "bootstrap.servers": address.servers,
        "client.id": "forebay",
        "log_level": 0,
        "log.connection.close": False,
        "socket.timeout.ms": 10_000,
        "socket.connection.setup.timeout.ms": 5_000,
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 2_000,
        **address.settings,
    }


def gone_codes(kafka: Any) -> tuple[int, ...]:
    """Return the codes by which brokers and the client say that a topic is not there."""
    errors = kafka.KafkaError
    return (
        errors.UNKNOWN_TOPIC_OR_PART,
        errors._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
        errors._UNKNOWN_PARTITION,  # noqa: SLF001 - its public name
    )
