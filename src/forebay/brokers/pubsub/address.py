"""Address: a Google Cloud project, and what its topics are called: `pubsub://PROJECT?prefix=…`."""

import re
from importlib import import_module
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from forebay.brokers.shared import naming
from forebay.core.units import duration_s
from forebay.errors import ConfigError

PREFIX: Final = "forebay"
DEADLINE_S: Final = 30.0  # who took a hint and is silent for so long has lost it
DEADLINE_MIN_S, DEADLINE_MAX_S = 10.0, 600.0  # what the service takes
RETENTION_S: Final = 7 * 86_400.0  # so long it keeps what nobody took, dead letters too
RETENTION_MIN_S, RETENTION_MAX_S = 600.0, 7 * 86_400.0
UNREADABLE: Final = "broker: the URL cannot be read; write pubsub://PROJECT"
_URL: Final = re.compile(r"pubsub://([a-z][a-z0-9.:-]{1,61}[a-z0-9])/?(?:\?([^#]*))?")
_PARAMETERS: Final = frozenset({"prefix", "ack_deadline", "retention"})


def pubsub_modules() -> tuple[Any, Any, Any, Any]:
    """Return `google.pubsub_v1`, its transports' errors, `grpc` and `google.auth`. Raises ConfigError naming
    the extra that brings them."""
    names = ("google.pubsub_v1", "google.api_core.exceptions", "grpc", "google.auth")
    try:
        pubsub, errors, grpc, auth = (import_module(name) for name in names)
        import_module("grpc.aio")
    except ImportError:
        raise ConfigError('broker: pubsub:// needs an extra: pip install "forebay[pubsub]"') from None
    return pubsub, errors, grpc, auth


class Address(NamedTuple):
    """A project, and how the topics and subscriptions of an installation are made there."""

    project: str
    prefix: str
    deadline_s: float
    retention_s: float
    label: str  # for people

    @classmethod
    def of(cls, url: str) -> "Address":
        """Return the address a URL names. Raises ConfigError with one line."""
        found = _URL.fullmatch(url)
        if found is None:
            raise ConfigError(UNREADABLE)
        said = dict(parse_qsl(found[2] or "", keep_blank_values=True))
        for key in said:
            if key not in _PARAMETERS:
                raise ConfigError(f"broker: the URL has an unknown parameter {key[:60]!r}")
        prefix = said.get("prefix", PREFIX)
        if naming.PREFIX.fullmatch(prefix) is None or prefix.lower().startswith("goog"):
            raise ConfigError(
                "broker: prefix must be letters, digits and _, a letter first and not goog (at most 48),"
                f" not {prefix[:60]!r}"
            )
        return cls(
            found[1],
            prefix,
            _seconds("ack_deadline", said, DEADLINE_S, DEADLINE_MIN_S, DEADLINE_MAX_S),
            _seconds("retention", said, RETENTION_S, RETENTION_MIN_S, RETENTION_MAX_S),
            f"pubsub://{found[1]}",
        )

    def topic(self, name: str) -> str:
        """Return the full name of a topic."""
        return f"projects/{self.project}/topics/{name}"

    def subscription(self, name: str) -> str:
        """Return the full name of a subscription."""
        return f"projects/{self.project}/subscriptions/{name}"

    def name(self, task: str) -> str:
        """Return what the topic and the subscription of a task's hints are called."""
        return naming.named(self.prefix, task)

    def dead_name(self, task: str) -> str:
        """Return what the topic and the subscription of its dead letters are called."""
        return f"{self.name(task)}--dead"


def _seconds(name: str, said: dict[str, str], default_s: float, least_s: float, most_s: float) -> float:
    text = said.get(name)
    if text is None:
        return default_s
    try:
        seconds = duration_s(text)
    except ValueError as error:
        raise ConfigError(f"broker: {name}: {error}") from None
    if not least_s <= seconds <= most_s:
        raise ConfigError(f"broker: {name} must be from {least_s:g} s to {most_s:g} s, not {text[:60]!r}")
    return seconds
