"""Address: where a RabbitMQ is: a URL of its client, with `prefix` and `dead_max` of ours."""

import logging
import re
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from forebay.brokers.shared import naming
from forebay.brokers.shared.authority import check_escapes
from forebay.brokers.shared.trust import context_of, not_accepted
from forebay.errors import ConfigError

SCHEMES: Final = ("amqp", "amqps")
PREFIX: Final = "forebay"
DEAD_MAX: Final = 10_000  # dead letters that a task's queue of them keeps, the newest
HEARTBEAT_S: Final = 10  # the client gives a silent server up after 38 s; `alive` asks sooner
_DRIVERS: Final = frozenset({
    "auth", "cafile", "capath", "cadata", "keyfile", "certfile", "no_verify_ssl", "heartbeat", "name",
})  # fmt: skip
_FILES: Final = frozenset({"cafile", "capath", "certfile", "keyfile"})
_TALKERS: Final = ("aio_pika", "aiormq")
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{1,48}")
UNREADABLE: Final = "broker: the URL cannot be read; write amqp://user@host:port/vhost"
LINE_MAX: Final = 300


def pika_module() -> Any:
    """Return the module `aio_pika`. Raises ConfigError naming the extra that brings it."""
    try:
        import aio_pika
    except ImportError:
        raise ConfigError('broker: amqp:// needs an extra: pip install "forebay[rabbitmq]"') from None
    for name in _TALKERS:  # what they would print is in our errors, or is no fault
        log = logging.getLogger(name)
        if log.level == logging.NOTSET:
            log.setLevel(logging.CRITICAL)
    return aio_pika


class Address(NamedTuple):
    """A virtual host of a server, and how our queues there are called."""

    url: str  # for the client; may hold a password
    prefix: str
    dead_max: int
    label: str  # for people: no password, no parameters

    @classmethod
    def of(cls, url: str) -> "Address":
        """Return the address a URL names. Raises ConfigError with one line that repeats no password."""
        pika_module()
        check_escapes(url)
        try:
            parts = urlsplit(url)
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            port = parts.port
        except ValueError:
            raise ConfigError(UNREADABLE) from None
        if parts.scheme not in SCHEMES or not parts.hostname:
            raise ConfigError(UNREADABLE)
        prefix, dead_max = query.pop("prefix", PREFIX), query.pop("dead_max", str(DEAD_MAX))
        if _PREFIX.fullmatch(prefix) is None:
            raise ConfigError(
                f"broker: prefix must be letters, digits, _ and - (at most 48), not {prefix[:60]!r}"
            )
        if not dead_max.isascii() or not dead_max.isdigit() or not 1 <= int(dead_max[:9]) <= 1_000_000:
            raise ConfigError(
                f"broker: dead_max must be a whole number from 1 to 1000000, not {dead_max[:60]!r}"
            )
        strange = sorted(set(query) - _DRIVERS)
        if strange:
            raise ConfigError(f"broker: RabbitMQ has no parameter {strange[0][:60]!r}")
        if _FILES & query.keys():  # what nobody names is not read: hundreds of certificates take a while
            context_of(
                "cafile, certfile or keyfile", ca_file=query.get("cafile"), ca_path=query.get("capath"),
                cert_file=query.get("certfile"), key_file=query.get("keyfile"),
            )  # fmt: skip
        query.setdefault("heartbeat", str(HEARTBEAT_S))
        query.setdefault("name", "forebay")
        path = parts.path or "/"  # of which the client makes the virtual host /
        bare = urlunsplit(parts._replace(path=path, query=urlencode(query), fragment=""))
        place = parts.hostname if port is None else f"{parts.hostname}:{port}"
        vhost = unquote(path[1:])
        return cls(bare, prefix, int(dead_max), f"{parts.scheme}://{place}/{vhost}")

    def queue(self, task: str) -> str:
        """Return the name of the queue of a task."""
        return f"{self.prefix}.{_written(task)}"

    def is_of_hints(self, queue: str) -> bool:
        """Return whether a queue of ours is one of hints, not of dead letters."""
        return queue.startswith(f"{self.prefix}.")

    def dead(self, task: str) -> str:
        """Return the name of the queue of a task's dead letters."""
        return f"{self.prefix}:dead.{_written(task)}"


def _written(task: str) -> str:
    """Return a task's name as its client and the server take it: neither takes any letter, nor any length."""
    return naming.written(task, "+", "-.")


def told(error: BaseException) -> str:
    """Return what is wrong in one line: the system's words where they are behind the client's."""
    cause = error.__cause__
    if (line := not_accepted(cause)) is not None:
        return line
    reason = getattr(error, "reason", None)
    if isinstance(cause, OSError):
        text = cause.strerror or str(cause)
    else:
        text = str(reason) if isinstance(reason, str) and not error.args else str(error)
    text = " ".join(text.split()) or type(error).__name__
    return text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 1]}…"
