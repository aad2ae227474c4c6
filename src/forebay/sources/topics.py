"""Kafka: a topic as a source: one message, one frame. Needs the extra `kafka`."""

from collections.abc import Iterator
from typing import Any, Final

from forebay.core.envelope import HEADER_BYTES_MAX, Header, header_of, parse
from forebay.errors import InvalidError
from forebay.sources.asked import STREAM, load, shown, size_bytes, stream_name, wait_s
from forebay.sources.failures import SourceError
from forebay.sources.feed import Feed
from forebay.streams.ports import Captured

LOOK_S: Final = 0.25
PREFETCH_KBYTES: Final = 65_536  # the client's buffer of messages that nobody asked for yet
FRAME_HEADER: Final = "forebay-frame"
STARTS: Final = ("earliest", "latest")


class Topic(Feed):
    """What `kafka` returns. It waits for whoever reads: what is not read stays in the topic.

    A message that is no frame is counted as `invalid` and passed over.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        group: str | None,
        start: str,
        stream: str | None,
        item_bytes_max: int,
        connect_s: float,
        settings: dict[str, Any],
    ) -> None:
        super().__init__("invalid", "errors")
        self._kafka = load("confluent_kafka", "kafka", "forebay.sources.kafka")
        self.stream = None if stream is None else stream_name(stream)
        self.item_bytes_max = self._bytes_max = item_bytes_max
        self.says = ""
        self._servers, self._topic, self._connect_s = servers, topic, connect_s
        self._start = None if group is not None else start
        self._settings = {
            "bootstrap.servers": servers,
            "group.id": "forebay" if group is None else group,
            "enable.auto.commit": group is not None,
            "auto.offset.reset": start,
            "enable.auto.offset.store": False,
            "queued.max.messages.kbytes": PREFETCH_KBYTES,
            "fetch.message.max.bytes": item_bytes_max + HEADER_BYTES_MAX,
            "error_cb": self._hear,
            "log_level": 0,
            **settings,
        }

    def __iter__(self) -> Iterator[Captured]:
        """Return frames, those of a partition in its order. Raises SourceError when no broker is reached, or
        the client can go on no more. A frame counts as read when the next one is asked for."""
        consumer: Any = self._open()
        try:
            while not self.closed.is_set():
                message = consumer.poll(LOOK_S)
                if message is None or self._is_error(message):
                    continue
                captured = self._captured(message)
                if captured is not None:
                    self.count("frames")
                    yield captured
                    del captured
                if self._start is None:
                    consumer.store_offsets(message)
        finally:
            consumer.close()

    def _open(self) -> Any:
        try:
            consumer = self._kafka.Consumer(self._settings)
        except (self._kafka.KafkaException, ValueError, TypeError) as error:
            raise InvalidError(f"kafka settings: {_text(error)}") from None
        try:
            self._join(consumer)
        except self._kafka.KafkaException as error:
            consumer.close()
            raise SourceError(f"kafka {shown(self._servers)}: {_text(error)}") from None
        return consumer

    def _join(self, consumer: Any) -> None:
        found = consumer.list_topics(self._topic, timeout=self._connect_s).topics[self._topic]
        if found.error is not None or not found.partitions:
            consumer.close()
            raise SourceError(f"kafka {self._topic}: {found.error or 'it has no partitions'}")
        if self._start is None:
            consumer.subscribe([self._topic])
            return
        kafka = self._kafka
        begin = kafka.OFFSET_BEGINNING if self._start == "earliest" else kafka.OFFSET_END
        consumer.assign([kafka.TopicPartition(self._topic, number, begin) for number in found.partitions])

    def _is_error(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return False
        if error.code() == self._kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            return True
        self._hear(error)
        if error.fatal():
            raise SourceError(f"kafka {self._topic}: {error.str()}")
        return True

    def _hear(self, error: Any) -> None:
        self.count("errors")
        self.says = str(error.str())

    def _captured(self, message: Any) -> Captured | None:
        data: bytes = message.value() or b""
        try:
            header = self._header(message, data)
        except InvalidError as error:
            self.count("invalid")
            self.says = str(error)
            return None
        now = self.clock.now()
        kind, stamp_ms = message.timestamp()
        captured_at = header.captured_at
        if captured_at is None:
            captured_at = stamp_ms / 1000 if kind == self._kafka.TIMESTAMP_CREATE_TIME else now
        return Captured(
            pixels_of(header, data),
            self._stream_of(message),
            min(captured_at, now),
            header.deadline,
            header.facts,
        )

    def _header(self, message: Any, data: bytes) -> Header:
        if len(data) > self._bytes_max:
            raise InvalidError(f"a message of {len(data)} bytes is larger than item_bytes_max")
        headers: list[tuple[str, bytes]] = message.headers() or []
        found = dict(headers).get(FRAME_HEADER)
        return header_of({} if found is None else parse(bytes(found)), len(data))

    def _stream_of(self, message: Any) -> str:
        if self.stream is not None:
            return self.stream
        key = (message.key() or b"").decode("ascii", "replace")
        return key if STREAM.fullmatch(key) else self._topic[:64]


def pixels_of(header: Header, data: bytes) -> Any:
    """Return an array where the header says its shape, else the bytes."""
    if header.shape is None:
        return data
    import numpy

    return numpy.frombuffer(data, header.dtype).reshape(header.shape)


def _text(error: BaseException) -> str:
    inner: Any = error.args[0] if error.args else error
    return str(inner.str() if hasattr(inner, "str") else inner)[:300]


def kafka(
    servers: str,
    topic: str,
    *,
    group: str | None = None,
    start: str = "latest",
    stream: str | None = None,
    item_bytes_max: str | int = "16MiB",
    connect: str | float = "10s",
    settings: dict[str, Any] | None = None,
) -> Topic:
    """Return a source of the messages of a topic: bytes, or an array where the message header `forebay-frame`
    says its `shape` and `dtype` in JSON.

    The stream is named by the key, or the topic where that is no name, or `stream`. `group`: readers that
    share the topic and go on where they were; without one every reader gets all that comes. `start`: `latest`
    or `earliest`, for those without a group and for a group that is new. `settings`: of librdkafka, for
    passwords and certificates. Raises ConfigError without the extra, InvalidError for a wrong argument.
    """
    if not topic or not isinstance(topic, str):
        raise InvalidError(f"topic must be a name, not {topic!r:.60}")
    if start not in STARTS:
        raise InvalidError(f"start must be one of {', '.join(STARTS)}, not {start!r:.40}")
    return Topic(
        servers,
        topic,
        group=group,
        start=start,
        stream=stream,
        item_bytes_max=size_bytes("item_bytes_max", item_bytes_max),
        connect_s=wait_s("connect", connect) or 10.0,
        settings=dict(settings or {}),
    )
