"""Address: where a store is: a Redis URL with `name` as a parameter of ours; errors in one line."""

import os
import re
import ssl
from importlib import import_module
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from forebay.brokers.shared.authority import check_escapes
from forebay.brokers.shared.trust import not_accepted
from forebay.errors import ConfigError

SCHEMES: Final = ("redis", "rediss")
NAME: Final = "forebay"  # what the keys begin with, unless the URL says `?name=…`
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,48}")
LINE_MAX: Final = 300  # characters of a driver's text in a line of ours
UNREADABLE: Final = "broker: the URL cannot be read; write redis://user@host:port/0"
# What a URL may say of the connection. The driver lets every other parameter pass in silence.
_PARAMETERS: Final = frozenset({
    "name",
    "ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile",
})  # fmt: skip


def redis_module() -> Any:
    """Return the package `redis`. Raises ConfigError naming the extra that brings it."""
    try:
        redis = import_module("redis")
        import_module("redis.asyncio")
    except ImportError:
        raise ConfigError('broker: redis:// needs an extra: pip install "forebay[redis]"') from None
    return redis


class Address(NamedTuple):
    """A server, one of its databases, and the name that all keys of the store begin with."""

    url: str  # for the driver; may hold a password
    name: str
    label: str  # for people: no password, no parameters

    @property
    def prefix(self) -> str:
        """What every key begins with: one hash tag, so that a cluster keeps all keys in one place."""
        return f"{{{self.name}}}:"

    @property
    def channel(self) -> str:
        """Where bells ring. Channels, unlike keys, are those of the whole server: each of its databases that
        has a store of this name has a channel of its own."""
        database = int(urlsplit(self.url).path.strip("/"))
        return f"{self.prefix}bells" if database == 0 else f"{self.prefix}bells:{database}"

    @classmethod
    def of(cls, url: str) -> "Address":
        """Return the address a URL names. Raises ConfigError with one line that repeats no password."""
        redis_module()
        check_escapes(url)
        try:
            parts = urlsplit(url)
            query = parse_qsl(parts.query, keep_blank_values=True)
            host, port = parts.hostname, parts.port or 6379
        except ValueError:
            raise ConfigError(UNREADABLE) from None
        if parts.scheme not in SCHEMES:
            raise ConfigError(f"broker: {parts.scheme}:// is not Redis")
        database = parts.path.strip("/") or "0"
        if not host or not database.isascii() or not database.isdigit():
            raise ConfigError(UNREADABLE)
        for key, _ in query:
            if key not in _PARAMETERS:
                raise ConfigError(f"broker: the URL has an unknown parameter {key[:60]!r}")
        named = [value for key, value in query if key == "name"]
        name = named[-1] if named else NAME
        if _NAME.fullmatch(name) is None:
            raise ConfigError(
                f"broker: name must be letters, digits, _, . and - (at most 48), not {name[:60]!r}"
            )
        rest = urlencode([pair for pair in query if pair[0] != "name"])
        bare = urlunsplit(parts._replace(path=f"/{database}", query=rest, fragment=""))
        shown = f"[{host}]" if ":" in host else host
        return cls(bare, name, f"{parts.scheme}://{shown}:{port}/{database}")


def told(error: BaseException) -> str:
    """Return the driver's words in one line."""
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    cause = error.__cause__ or error.__context__
    if (line := not_accepted(cause)) is not None:  # an OSError whose number means something else
        return line
    if (
        isinstance(cause, OSError)
        and not isinstance(cause, ssl.SSLError)
        and cause.errno is not None
        and cause.errno > 0
    ):
        return os.strerror(cause.errno)
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 1]}…"
