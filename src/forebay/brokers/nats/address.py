"""Address: where a NATS server is: a URL with `prefix` and `replicas` of ours; errors in one line."""

import os
import re
import ssl
from importlib import import_module
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from forebay.brokers.shared.authority import check_escapes
from forebay.brokers.shared.trust import context_of, not_accepted
from forebay.errors import ConfigError

SCHEMES: Final = ("nats", "tls")
PREFIX: Final = "forebay"  # what streams and subjects begin with, unless the URL says `?prefix=…`
PORT: Final = 4222
SERVERS_MAX: Final = 16  # named in one URL
REPLICAS_MAX: Final = 5  # what JetStream allows
LINE_MAX: Final = 300  # characters of a driver's text in a line of ours
UNREADABLE: Final = "broker: the URL cannot be read; write nats://user:password@host:4222"
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{1,48}")
_PARAMETERS: Final = frozenset({"prefix", "replicas", "ca", "cert", "key"})


def nats_module() -> Any:
    """Return the package `nats`. Raises ConfigError naming the extra that brings it."""
    try:
        nats = import_module("nats")
        import_module("nats.aio.client")
    except ImportError:
        raise ConfigError('broker: nats:// needs an extra: pip install "forebay[nats]"') from None
    return nats


class Address(NamedTuple):
    """Servers of one NATS system, who we are there, and what our streams and subjects begin with."""

    servers: tuple[str, ...]  # host:port each
    user: str | None
    password: str | None  # None with a user: that is a token
    tls: ssl.SSLContext | None
    prefix: str
    replicas: int
    label: str  # for people: no password, no parameters

    @classmethod
    def of(cls, url: str) -> "Address":
        """Return the address a URL names. Raises ConfigError with one line that repeats no password."""
        nats_module()
        check_escapes(url)
        try:
            parts = urlsplit(url)
            query = parse_qsl(parts.query, keep_blank_values=True)
            who, _, hosts = parts.netloc.rpartition("@")
            servers = tuple(_server(parts.scheme, host) for host in hosts.split(","))
        except ValueError:
            raise ConfigError(UNREADABLE) from None
        if parts.scheme not in SCHEMES:
            raise ConfigError(f"broker: {parts.scheme[:20]}:// is not NATS")
        if "@" in who and "," in who:  # else what stands before the second host would be taken for a password
            raise ConfigError(
                "broker: the URL names a user more than once; write nats://user:password@host,host"
            )
        if len(servers) > SERVERS_MAX or parts.path.strip("/") or parts.fragment:
            raise ConfigError(UNREADABLE)
        for key, _ in query:
            if key not in _PARAMETERS:
                raise ConfigError(f"broker: the URL has an unknown parameter {key[:60]!r}")
        said = dict(query)
        user, colon, password = who.partition(":")
        return cls(
            servers,
            unquote(user) if who else None,
            unquote(password) if colon else None,
            _tls(parts.scheme, said),
            _prefix(said),
            _replicas(said),
            f"{parts.scheme}://{','.join(servers)}",
        )


def _server(scheme: str, text: str) -> str:
    """Return host:port. Raises ValueError."""
    parts = urlsplit(f"{scheme}://{text}")
    if not parts.hostname or parts.hostname.strip() != parts.hostname:
        raise ValueError
    shown = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{shown}:{parts.port or PORT}"


def _prefix(said: dict[str, str]) -> str:
    prefix = said.get("prefix", PREFIX)
    if _PREFIX.fullmatch(prefix) is None:
        raise ConfigError(
            f"broker: prefix must be letters, digits, _ and - (at most 48), not {prefix[:60]!r}"
        )
    return prefix


def _replicas(said: dict[str, str]) -> int:
    text = said.get("replicas", "1")
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= REPLICAS_MAX):
        raise ConfigError(f"broker: replicas must be 1 to {REPLICAS_MAX}, not {text[:60]!r}")
    return int(text)


def _tls(scheme: str, said: dict[str, str]) -> ssl.SSLContext | None:
    if scheme != "tls":
        if named := [key for key in ("ca", "cert", "key") if key in said]:
            raise ConfigError(f"broker: {named[0]} is for tls:// alone")
        return None
    return context_of(
        "ca, cert or key", ca_file=said.get("ca"), cert_file=said.get("cert"), key_file=said.get("key")
    )


def told(error: BaseException) -> str:
    """Return the driver's words in one line."""
    if (line := not_accepted(error)) is not None:
        return line
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    text = " ".join(str(error).split()).removeprefix("nats: ").strip("'") or type(error).__name__
    return text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 1]}…"
