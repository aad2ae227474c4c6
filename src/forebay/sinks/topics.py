"""Kafka: results as messages of a topic. Needs the extra `kafka`."""

import json
import threading
from collections.abc import Mapping
from typing import Any, Final

from forebay.errors import InvalidError
from forebay.sinks.shape import fields_of, is_pixels, line_of
from forebay.sources.asked import load, shown, size_bytes, wait_s
from forebay.sources.failures import SinkError
from forebay.sources.topics import FRAME_HEADER
from forebay.streams.ports import Result

WAITING_MAX: Final = 10_000  # messages that the client holds
WAITING_KBYTES: Final = 65_536


class Topic:
    """What `kafka` returns. The client holds what the brokers have not confirmed; while that is full,
    `write` waits `wait` and then drops the result."""

    def __init__(
        self, servers: str, topic: str, *, wait_max_s: float, item_bytes_max: int, settings: dict[str, Any]
    ) -> None:
        self._kafka = load("confluent_kafka", "kafka", "forebay.sinks.kafka")
        self._servers, self._topic, self._wait_max_s = servers, topic, wait_max_s
        self._lock = threading.Lock()
        self._counts = {"written": 0, "delivered": 0, "failed": 0, "dropped": 0}
        self.says = ""
        try:
            self._producer: Any = self._kafka.Producer(
                {
                    "bootstrap.servers": servers,
                    "message.max.bytes": item_bytes_max,
                    "queue.buffering.max.messages": WAITING_MAX,
                    "queue.buffering.max.kbytes": WAITING_KBYTES,
                    "linger.ms": 5,
                    "log_level": 0,
                    "error_cb": self._hear,
                    **settings,
                }
            )
        except (self._kafka.KafkaException, ValueError, TypeError) as error:
            raise InvalidError(f"kafka settings: {str(error)[:300]}") from None

    def write(self, result: Result) -> None:
        """Hand one result to the client. Raises SinkError when it was dropped, InvalidError for no JSON."""
        value, headers = _message(result)
        for tries in range(2):
            try:
                self._producer.produce(
                    self._topic, value, key=result.stream, headers=headers, on_delivery=self._delivered
                )
            except BufferError:
                if not tries:
                    self._producer.poll(self._wait_max_s)
                    continue
                self._count("dropped")
                raise SinkError(
                    f"kafka {self._topic}: {WAITING_MAX} results wait for the brokers: {self.says}"
                ) from None
            except self._kafka.KafkaException as error:
                self._count("dropped")
                raise SinkError(f"kafka {self._topic}: {str(error)[:300]}") from None
            break
        self._count("written")
        self._producer.poll(0)

    def _delivered(self, error: Any, _message: Any) -> None:
        self._count("delivered" if error is None else "failed")
        if error is not None:
            self._hear(error)

    def _hear(self, error: Any) -> None:
        self.says = str(error.str())

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def counts(self) -> Mapping[str, int]:
        """Return `written` to the client, `delivered` to a broker, `failed` there, and `dropped` here."""
        with self._lock:
            return dict(self._counts)

    def close(self) -> None:
        """Wait for the brokers. Raises SinkError that says how many results they did not confirm."""
        left = self._producer.flush(self._wait_max_s)
        if left:
            raise SinkError(f"kafka {shown(self._servers)}: {left} results were not confirmed: {self.says}")


def _message(result: Result) -> tuple[bytes, list[tuple[str, bytes]]]:
    if not is_pixels(result.value):
        return line_of(result).encode(), []
    value: Any = result.value
    fields = fields_of(result)
    header: dict[str, Any] = {
        name: fields[name] for name in ("captured_at", "seq", "facts") if name in fields
    }
    if hasattr(value, "__array_interface__"):
        import numpy

        array = numpy.ascontiguousarray(value)
        header |= {"shape": list(array.shape), "dtype": array.dtype.str}
        value = array.tobytes()
    return bytes(value), [(FRAME_HEADER, json.dumps(header).encode())]


def kafka(
    servers: str,
    topic: str,
    *,
    wait: str | float = "10s",
    item_bytes_max: str | int = "16MiB",
    settings: dict[str, Any] | None = None,
) -> Topic:
    """Return a sink that writes results to a topic, keyed by stream: JSON, or the bytes of an array with its
    shape in the message header `forebay-frame`, as `sources.kafka` reads it.

    `wait`: for room in the client (10,000 messages, 64 MiB), and at the end for what is not confirmed.
    `settings`: of librdkafka. Raises ConfigError without the extra, InvalidError for a wrong argument.
    """
    if not topic or not isinstance(topic, str):
        raise InvalidError(f"topic must be a name, not {topic!r:.60}")
    return Topic(
        servers,
        topic,
        wait_max_s=wait_s("wait", wait) or 10.0,
        item_bytes_max=size_bytes("item_bytes_max", item_bytes_max),
        settings=dict(settings or {}),
    )
