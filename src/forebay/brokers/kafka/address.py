"""Address: where a cluster is, and what its topics are called: `kafka://host:port,host:port?prefix=…`."""

import re
from importlib import import_module
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from forebay.brokers.shared import naming
from forebay.brokers.shared.naming import named
from forebay.core.units import duration_s
from forebay.errors import ConfigError

SCHEME: Final = "kafka"
PORT: Final = 9092
PREFIX: Final = "forebay"
PARTITIONS: Final = 12  # of one task: so many servers may receive at once
PARTITIONS_MAX: Final = 1_000
RETENTION_S: Final = 7 * 86_400.0  # a hint that nobody read for so long is removed; so is a dead letter
RETENTION_MIN_S: Final = 60.0
LINE_MAX: Final = 300  # characters of a client's text in a line of ours
UNREADABLE: Final = "broker: the URL cannot be read; write kafka://host:9092,host:9092"
_URL: Final = re.compile(
    r"kafka://(?:(?P<user>[^/?#]*)@)?(?P<hosts>[^/?#@]+)/?(?:\?(?P<query>[^#]*))?", re.IGNORECASE
)
_HOST: Final = re.compile(r"(?:[A-Za-z0-9_.-]{1,255}|\[[0-9a-fA-F:.]{2,60}\])(?::[0-9]{1,5})?")
# What a URL may say of the connection, in the client's own words.
_SECURITY: Final = frozenset({
    "security.protocol", "sasl.mechanism", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
    "ssl.endpoint.identification.algorithm",
})  # fmt: skip
_OURS: Final = frozenset({"prefix", "partitions", "replicas", "retention", "make"})


def kafka_module() -> Any:
    """Return the package `confluent_kafka`. Raises ConfigError naming the extra that brings it."""
    try:
        kafka = import_module("confluent_kafka")
        import_module("confluent_kafka.admin")
    except ImportError:
        raise ConfigError('broker: kafka:// needs an extra: pip install "forebay[kafka]"') from None
    return kafka


class Address(NamedTuple):
    """A cluster, and how the topics of an installation are made there."""

    servers: str
    settings: dict[str, str]  # of the connection; may hold a password
    prefix: str
    partitions: int
    replicas: int  # -1: as many as the brokers make by themselves
    retention_s: float
    makes: bool  # topics are made where they are missing
    label: str  # for people: no password, no parameters

    @classmethod
    def of(cls, url: str) -> "Address":
        """Return the address a URL names. Raises ConfigError with one line that repeats no password."""
        found = _URL.fullmatch(url)
        hosts = [] if found is None else found["hosts"].split(",")
        if found is None or not all(_HOST.fullmatch(host) for host in hosts):
            raise ConfigError(UNREADABLE)
        said = dict(parse_qsl(found["query"] or "", keep_blank_values=True))
        for key in said:
            if key not in _OURS | _SECURITY:
                raise ConfigError(f"broker: the URL has an unknown parameter {key[:60]!r}")
        prefix = said.get("prefix", PREFIX)
        if naming.PREFIX.fullmatch(prefix) is None:
            raise ConfigError(
                "broker: prefix must be letters, digits and _, a letter first (at most 48),"
                f" not {prefix[:60]!r}"
            )
        make = said.get("make", "yes")
        if make not in {"yes", "no"}:
            raise ConfigError(f"broker: make must be yes or no, not {make[:60]!r}")
        servers = ",".join(host if _has_port(host) else f"{host}:{PORT}" for host in hosts)
        replicas = said.get("replicas")
        return cls(
            servers,
            _connection(found["user"], said),
            prefix,
            _count("partitions", said.get("partitions", str(PARTITIONS)), PARTITIONS_MAX),
            -1 if replicas is None else _count("replicas", replicas, 100),
            _retention_s(said.get("retention")),
            make == "yes",
            f"{SCHEME}://{servers}",
        )

    def topic(self, task: str) -> str:
        """Return the topic of a task's hints, and the name of the group that reads it: different for each
        task and prefix, whatever the names hold. Never two that brokers take for one (`a.b` and `a_b`)."""
        return named(self.prefix, task)

    def dead_topic(self, task: str) -> str:
        """Return the topic of a task's dead letters."""
        return f"{self.topic(task)}--dead"


def _has_port(host: str) -> bool:
    return re.search(r":[0-9]{1,5}\Z", host.rpartition("]")[2]) is not None


def _count(name: str, text: str, most: int) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= most:
        return int(text)
    raise ConfigError(f"broker: {name} must be a number from 1 to {most}, not {text[:60]!r}")


def _retention_s(text: str | None) -> float:
    if text is None:
        return RETENTION_S
    try:
        seconds = duration_s(text)
    except ValueError as error:
        raise ConfigError(f"broker: retention: {error}") from None
    if seconds < RETENTION_MIN_S:
        raise ConfigError(f"broker: retention must be {RETENTION_MIN_S:g} s or more, not {text[:60]!r}")
    return seconds


def _connection(user: str | None, said: dict[str, str]) -> dict[str, str]:
    settings = {key: value for key, value in said.items() if key in _SECURITY}
    if user is not None:
        name, _, password = user.partition(":")
        settings = {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", **settings}
        settings |= {"sasl.username": unquote(name), "sasl.password": unquote(password)}
    return settings


def told(error: object) -> str:
    """Return the client's words in one line."""
    inner: Any = error.args[0] if isinstance(error, BaseException) and error.args else error
    text = " ".join(str(inner.str() if hasattr(inner, "str") else inner).split()) or type(error).__name__
    return text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 1]}…"
