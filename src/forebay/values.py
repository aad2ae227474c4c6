"""Values: how the text of a setting becomes its value, and a text that never shows itself."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from forebay.core.budget import read_budget
from forebay.core.signing_keys import read_keys
from forebay.core.units import duration_s, size_b

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_MASK = "********"
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class About(NamedTuple):
    """What the docs say of one setting, and how its text is read."""

    text: str
    kind: str = "text"  # a key of READERS
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    def bound(self, bound: float) -> str:
        """Return a bound as it would be written: "1KiB", "100000000", "0.001"."""
        for step, unit in _UNITS if self.kind == "size" and bound else ():
            if bound % step == 0:
                return f"{int(bound) // step}{unit}"
        return f"{int(bound)}" if bound == int(bound) else f"{bound:g}"


class Secret:
    """A text that never shows itself: repr, str and JSON are masked."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({_MASK!r})"

    def __str__(self) -> str:
        return _MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def _int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", value.strip(), re.ASCII):
        return int(value)
    raise ValueError("must be a whole number")


def _number(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value.strip(), re.ASCII):
        return float(value)
    raise ValueError("must be a number")


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError("must be true or false (also: yes, no, on, off, 1, 0)")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a text")
    if any(ord(sign) < 32 for sign in value):
        raise ValueError("contains a control character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("is not UTF-8") from None
    return value


def _secret(value: Any) -> Secret:
    return Secret(_text(value))


def _signing_secrets(value: Any) -> Secret:
    read_keys(_text(value))
    return Secret(value)


def _ports(value: Any) -> tuple[int, ...]:
    words: Any = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list | tuple):
        raise ValueError("must be a list of ports, or one text with commas")
    found: list[Any] = [*words]
    ports = tuple(_int(word) for word in found)
    if any(not 1 <= port <= 65_535 for port in ports):
        raise ValueError("must hold ports from 1 to 65535")
    return ports


def _words(value: Any) -> tuple[str, ...]:
    words: Any = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list | tuple):
        raise ValueError("must be a list of texts, or one text with commas")
    found: list[Any] = [*words]
    return tuple(_text(word).strip().lower() for word in found)


def _budgets(value: Any) -> tuple[str, ...]:
    words: Any = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list | tuple):
        raise ValueError("must be a list of texts, or one text with commas")
    found: list[Any] = [*words]
    named = [read_budget(_text(word)) for word in found]
    if any(rate is None for _, rate in named):
        raise ValueError("must name the rate of each: ci=300/s")
    if len({name for name, _ in named}) < len(named):
        raise ValueError("names one of them twice")
    return tuple(_text(word).strip() for word in found)


def read_table(path: Path, *, bytes_max: int) -> dict[str, Any]:
    """Return what a TOML file without sections holds. Raises ValueError with what is wrong with it."""
    try:
        if path.is_dir() or not path.is_file():
            raise ValueError("not a file")
        if path.stat().st_size > bytes_max:
            raise ValueError(f"larger than {bytes_max} bytes")
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise ValueError(error.strerror or "cannot be read") from None
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise ValueError(f"not TOML: {one_line(str(error))}") from None
    for key, value in table.items():
        if isinstance(value, dict):
            raise ValueError(f"there are no sections: [{one_line(key)}] (write the setting at the top)")
    return table


def engine_url(value: Any) -> str:
    """Return the URL of an engine. Raises ValueError, that repeats none of it, where a password seems to hold
    what ends the place in a URL: its rest would be taken for a port, a path or a parameter, and shown."""
    text = _text(value)
    scheme, _, behind = text.partition("://")
    place = re.match(r"[^/?#]*", behind)
    assert place is not None
    rest = behind[place.end() :]
    if scheme != "sqlite" and "@" in rest and "@" not in place[0] and "=" not in rest.partition("@")[0]:
        raise ValueError(
            "has an @ behind its host: write what a user, password or path holds of @ / ? # % as"
            " %40 %2F %3F %23 %25"
        )
    return text


READERS: Final[dict[str, Any]] = {
    "text": _text,
    "url": engine_url,
    "int": _int,
    "number": _number,
    "bool": _bool,
    "duration": duration_s,
    "size": size_b,
    "secret": _secret,
    "words": _words,
    "signing secrets": _signing_secrets,
    "ports": _ports,
    "budgets": _budgets,
}


def service_links(env: Mapping[str, str]) -> frozenset[str]:
    """Return the variables that Kubernetes sets in every pod beside a Service called "forebay…".

    They tell where the Service is and are no settings, though they begin as settings do: FOREBAY_PORT is
    "tcp://10.0.0.7:8080" then, unless the pod says otherwise.
    """
    tail = "_SERVICE_HOST"
    services = [
        name.removesuffix(tail) for name in env if name.startswith("FOREBAY_") and name.endswith(tail)
    ]
    return frozenset(
        name
        for name, value in env.items()
        for service in services
        if name == service + tail
        or name.startswith((f"{service}_SERVICE_PORT", f"{service}_PORT_"))
        or (name == f"{service}_PORT" and "://" in value)
    )


def one_line(text: str) -> str:
    """Return a text as one printable line, cut."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return line if len(line) <= 200 else line[:199] + "…"


def of_system(error: OSError) -> str:
    """Return what the system said, with the file it said it of: "/data/forebay.db: Permission denied"."""
    said = error.strerror or str(error)
    return said if error.filename is None else f"{one_line(str(error.filename))}: {said}"


def without_password(url: str) -> str:
    """Return a URL with stars in place of its password, and of one among its parameters."""
    url = re.sub(r"(://[^/?#@:]*):(?:[^?]*|[^=]*)@", r"\1:***@", url)
    url = re.sub(r"^((?:nats|tls)://)[^/?#@:]+@", r"\1***@", url)  # who stands there alone is a token
    return re.sub(r"(?i)([?&](?:ssl)?password=)[^&#]*", r"\1***", url)
