"""API keys: made, hashed, written down, and read back from a text or a file; plain keys are never kept."""

import base64
import hashlib
import json
import re
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from forebay.core.fairness import share_problem
from forebay.core.tenant import SCOPES_DEFAULT, TENANT, TENANT_RULE, Limits, Scope
from forebay.core.units import rate_per_s, size_b
from forebay.errors import ConfigError

PREFIX: Final = "fb_"
KEY_LENGTH_MIN, KEY_LENGTH_MAX = 8, 256  # characters
STRONG_LENGTH: Final = 32  # a shorter key can be guessed from its hash, and is warned of
KEYS_MAX: Final = 10_000
PAYLOAD_KEY_BYTES: Final = 32
PAYLOAD_KEYS_MAX: Final = 16
FILE_BYTES_MAX: Final = 4 * 1024 * 1024
TENANT_DEFAULT: Final = "default"
_SHA256: Final = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)
_SECRET: Final = re.compile(rf"[\x21-\x7e]{{{KEY_LENGTH_MIN},{KEY_LENGTH_MAX}}}", re.ASCII)
_LIMIT_NAMES: Final = frozenset(
    {"rate", "burst", "bytes_rate", "jobs_max", "bytes_max", "running_max", "weight"}
)
_KEY_NAMES: Final = frozenset({"tenant", "scopes", "expires", "name"})


class Key(NamedTuple):
    """One key: its digest, whose it is, and what it may do."""

    digest: bytes
    tenant: str
    scopes: frozenset[Scope] = SCOPES_DEFAULT
    expires_at: float | None = None
    weak: bool = False  # it was given in plain and is short


class KeyRing(NamedTuple):
    """Every key by its digest, and the limits of the tenants that have some."""

    keys: Mapping[bytes, Key]
    limits: Mapping[str, Limits]


def new_key() -> str:
    """Return a fresh key of 256 bits."""
    return PREFIX + secrets.token_urlsafe(32)


def new_payload_key() -> str:
    """Return a fresh key for the setting payload_keys."""
    return secrets.token_urlsafe(PAYLOAD_KEY_BYTES)


def payload_keys(text: str) -> list[bytes]:
    """Return the keys of the setting, the newest first. Raises ConfigError that never shows one."""
    keys: list[bytes] = []
    for place, word in enumerate(filter(None, (part.strip() for part in text.split(","))), 1):
        bare = word.rstrip("=")
        try:
            key = base64.b64decode(bare + "=" * (-len(bare) % 4), b"-_", validate=True)
        except ValueError:
            key = b""
        if len(key) != PAYLOAD_KEY_BYTES:
            raise ConfigError(
                f"payload_keys: key {place} is not {PAYLOAD_KEY_BYTES} bytes in base64url;"
                " make one with: forebay keys payload"
            )
        keys.append(key)
    if not 1 <= len(keys) <= PAYLOAD_KEYS_MAX:
        raise ConfigError(f"payload_keys: there are {len(keys)} keys, must be from 1 to {PAYLOAD_KEYS_MAX}")
    return keys


def digest_of(key: bytes) -> bytes:
    """Return the hash by which a key is known. Keys are long and drawn, so a fast hash is enough."""
    return hashlib.sha256(key).digest()


def line_for(key: str, tenant: str, scopes: Iterable[Scope]) -> str:
    """Return the line of the keys file that lets the key in; it does not hold the key."""
    names = ", ".join(f'"{scope.value}"' for scope in Scope if scope in set(scopes))
    digest = digest_of(key.encode()).hex()
    return f'"sha256:{digest}" = {{ tenant = "{tenant}", scopes = [{names}] }}'


def scopes_of(words: Iterable[object]) -> frozenset[Scope]:
    """Return the scopes named. Raises ValueError naming the word that is none."""
    known = {scope.value: scope for scope in Scope}
    found: set[Scope] = set()
    for word in words:
        scope = known.get(word) if isinstance(word, str) else None
        if scope is None:
            raise ValueError(f"scope {str(word)[:20]!r} is not one of {', '.join(known)}")
        found.add(scope)
    if not found:
        raise ValueError(f"scopes must name one or more of {', '.join(known)}")
    return frozenset(found)


def tenant_of(text: object) -> str:
    """Return a tenant's name. Raises ValueError with the rule."""
    if not isinstance(text, str) or TENANT.fullmatch(text) is None:
        raise ValueError(f"tenant must be {TENANT_RULE}")
    return text


def read_ring(inline: str | None, file: Path | None) -> KeyRing:
    """Return the keys of both sources. Raises ConfigError with one line that never shows a key."""
    keys: dict[bytes, Key] = {}
    limits: dict[str, Limits] = {}
    for where, tables in (("api_keys", _inline(inline)), (f"keys_file {file}", _file(file))):
        for place, (name, row) in enumerate(tables[0], 1):
            try:
                table = _table(row)
                key = _key(name, table)
                if key.digest in keys:
                    raise ValueError("is there twice")
                keys[key.digest] = key
                _put_limits(limits, key.tenant, {k: v for k, v in table.items() if k in _LIMIT_NAMES})
            except ValueError as error:
                raise ConfigError(f"{where}: key {place}: {error}") from None
        for tenant, table in tables[1].items():
            try:
                _put_limits(limits, tenant_of(tenant), table)
            except ValueError as error:
                raise ConfigError(f"{where}: tenant {str(tenant)[:64]!a}: {error}") from None
    if len(keys) > KEYS_MAX:
        raise ConfigError(f"there are {len(keys)} API keys, the most is {KEYS_MAX}")
    return KeyRing(keys, limits)


_Tables = tuple[list[tuple[str, object]], dict[str, Any]]


def _inline(text: str | None) -> _Tables:
    if text is None:
        return [], {}
    if text.lstrip().startswith("{"):
        try:
            found: Any = json.loads(text, object_pairs_hook=_each_once)
        except (ValueError, RecursionError) as error:
            why = str(error) if isinstance(error, _TwiceError) else "begins like JSON and is not JSON"
            raise ConfigError(f"api_keys: {why}") from None
        return list(found.items()), {}
    return [_entry(word) for word in text.replace(";", ",").replace("\n", ",").split(",") if word.strip()], {}


class _TwiceError(ValueError):
    pass


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object as a table: of two equal names one would be lost, and the name may be a key."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise _TwiceError("a name is there twice in one object")
    return table


def _entry(word: str) -> tuple[str, object]:
    """KEY, KEY=TENANT or KEY=TENANT:SCOPE+SCOPE; a colon does for the sign of equality."""
    word = word.strip()
    head = "sha256:" if word.startswith("sha256:") else ""
    key, mark, rest = word.removeprefix(head).partition("=")
    if not mark:
        key, mark, rest = word.removeprefix(head).partition(":")
    tenant, _, scopes = rest.partition(":")
    table: dict[str, Any] = {"tenant": tenant} if mark else {}
    if scopes:
        table["scopes"] = scopes.split("+")
    return head + key.strip(), table


def _table(value: object) -> dict[str, Any]:
    """Return what is said of one key. Raises ValueError for what says nothing."""
    if isinstance(value, str):
        return {"tenant": value}
    if not isinstance(value, dict):
        raise ValueError('must be a tenant, or a table like { tenant = "crew", scopes = ["submit"] }')
    return cast("dict[str, Any]", value)


def _file(path: Path | None) -> _Tables:
    if path is None:
        return [], {}
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError(f"keys_file {path}: larger than {FILE_BYTES_MAX} bytes")
        table = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"keys_file {path}: {(error.strerror or 'cannot be read').lower()}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"keys_file {path}: not UTF-8 (byte {error.start})") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"keys_file {path}: not TOML: {' '.join(str(error).split())[:200]}") from None
    unknown = sorted(set(table) - {"keys", "tenants"})
    if unknown:
        raise ConfigError(
            f"keys_file {path}: unknown section {unknown[0][:64]!a} (there are keys and tenants)"
        )
    keys, tenants = table.get("keys", {}), table.get("tenants", {})
    if not isinstance(keys, dict) or not isinstance(tenants, dict):
        raise ConfigError(f"keys_file {path}: keys and tenants must be tables")
    rows = cast("dict[str, object]", keys)
    return list(rows.items()), cast("dict[str, Any]", tenants)


def _key(name: str, table: dict[str, Any]) -> Key:
    unknown = sorted(str(word) for word in set(table) - _KEY_NAMES - _LIMIT_NAMES)
    if unknown:
        raise ValueError(f"unknown field {unknown[0][:40]!a}")
    hashed = _SHA256.fullmatch(name)
    if hashed is None and (_SECRET.fullmatch(name) is None or name.startswith("sha256:")):
        raise ValueError(
            f"must be sha256: and 64 hex digits, or {KEY_LENGTH_MIN} to {KEY_LENGTH_MAX} visible ASCII signs"
        )
    said = table.get("scopes")
    words = cast("list[object] | None", said)
    if said is not None and not isinstance(said, list):
        raise ValueError("scopes must be a list")
    return Key(
        bytes.fromhex(hashed[1]) if hashed is not None else digest_of(name.encode()),
        tenant_of(table.get("tenant", TENANT_DEFAULT)),
        SCOPES_DEFAULT if words is None else scopes_of(words),
        _instant(table.get("expires")),
        hashed is None and len(name) < STRONG_LENGTH,
    )


def _instant(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    if not isinstance(value, datetime):
        raise ValueError("expires must be a time like 2027-01-01T00:00:00Z")
    return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp()


def _put_limits(limits: dict[str, Limits], tenant: str, table: object) -> None:
    if not isinstance(table, dict):
        raise ValueError("limits must be a table")
    said = cast("dict[str, Any]", table)
    if not said:
        return
    unknown = sorted(str(name) for name in set(said) - _LIMIT_NAMES)
    if unknown:
        raise ValueError(f"unknown limit {unknown[0][:40]!a} (there are {', '.join(sorted(_LIMIT_NAMES))})")
    fresh = _limits(said)
    problem = share_problem(fresh.share)
    if problem is not None:
        raise ValueError(problem)
    before = limits.setdefault(tenant, fresh)
    if before != fresh:
        raise ValueError(f"the limits of tenant {tenant} are said twice, and differ")


def _limits(table: Mapping[str, Any]) -> Limits:
    def number(name: str, read: Any, least: float) -> Any:
        if name not in table:
            return None
        try:
            value = read(table[name])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if value < least:
            raise ValueError(f"{name} must be at least {least:g}")
        return value

    weight = number("weight", _real, 0)
    return Limits(
        number("rate", rate_per_s, 0.0),
        number("burst", _whole, 1),
        number("bytes_rate", _bytes_rate, 1),
        number("jobs_max", _whole, 0),
        number("bytes_max", size_b, 0),
        number("running_max", _whole, 0),
        1.0 if weight is None else weight,
    )


def _bytes_rate(value: object) -> float:
    if isinstance(value, str) and value.rstrip().endswith("/s"):
        value = value.rstrip()[:-2]
    return float(size_b(value))


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("must be a whole number")


def _real(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
        return float(value)
    raise ValueError("must be a number")
