"""Address: where a store is: a libpq URL with `schema` as a parameter of ours; errors in one line."""

import re
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from forebay.brokers.shared.authority import check_escapes
from forebay.errors import ConfigError

SCHEMES: Final = ("postgresql", "postgres")
SCHEMA: Final = "forebay"  # where the objects are, unless the URL says `?schema=…`
_SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")
LINE_MAX: Final = 300  # characters of a driver's text in a line of ours
# What a URL may leave out. A peer that vanished is noticed within about ten seconds, not two hours.
CONNECT_TIMEOUT_S: Final = 5
_KEEPALIVE: Final = {
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}


def psycopg_module() -> Any:
    """Return the module `psycopg`. Raises ConfigError naming the extra that brings it."""
    try:
        import psycopg
    except ImportError:
        raise ConfigError('broker: postgresql:// needs an extra: pip install "forebay[postgres]"') from None
    return psycopg


class Address(NamedTuple):
    """A database and the schema in it."""

    conninfo: str  # for libpq; may hold a password
    schema: str
    label: str  # for people: no password, no parameters

    @classmethod
    def of(cls, url: str) -> "Address":
        """Return the address a URL names. Raises ConfigError with one line that repeats no password."""
        psycopg = psycopg_module()
        check_escapes(url)
        try:
            parts = urlsplit(url)
            query = parse_qsl(parts.query, keep_blank_values=True)
        except ValueError:
            raise ConfigError(
                "broker: the URL cannot be read; write postgresql://user@host:port/database"
            ) from None
        if parts.scheme not in SCHEMES:
            raise ConfigError(f"broker: {parts.scheme}:// is not PostgreSQL")
        named = [value for name, value in query if name == "schema"]
        schema = named[-1] if named else SCHEMA
        if _SCHEMA_NAME.fullmatch(schema) is None or schema.startswith("pg_"):
            raise ConfigError(
                "broker: schema must be lower-case letters, digits and _ (at most 48, not pg_…), not"
                f" {schema[:60]!r}"
            )
        rest = urlencode([pair for pair in query if pair[0] != "schema"])
        bare = urlunsplit(parts._replace(scheme="postgresql", query=rest, fragment=""))
        try:
            given: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(bare)
        except psycopg.Error as error:
            if "URI query parameter" in str(error):
                raise ConfigError(f"broker: {_line(error)}") from None
            # The driver's text may repeat the password.
            raise ConfigError(
                "broker: the URL cannot be read; write postgresql://user@host:port/database"
            ) from None
        options = {"application_name": "forebay", "connect_timeout": CONNECT_TIMEOUT_S, **_KEEPALIVE}
        conninfo = psycopg.conninfo.make_conninfo(**{**options, **given})
        host, port = given.get("host") or "localhost", given.get("port")
        place = f"{host}:{port}" if port else str(host)
        return cls(conninfo, schema, f"postgresql://{place}/{given.get('dbname') or ''}")


def told(error: BaseException) -> str:
    """Return the driver's words in one line."""
    return _line(error)


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 1]}…"
