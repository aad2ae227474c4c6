"""What a request says about itself: headers, host, origin, query; strict, and cheap on the hot routes."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes

from forebay.config import Settings
from forebay.core.units import duration_s
from forebay.errors import (
    InvalidError,
    MalformedError,
    MediaTypeError,
    NotFoundError,
    UnauthorizedError,
    UnknownTaskError,
)
from forebay.server.limits import (
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    PATH_BYTES_MAX,
    QUERY_PARAMS_MAX,
    WAIT_MAX_S,
)
from forebay.server.problems import (
    CrossOriginError,
    ExpectationError,
    HeadersTooLargeError,
    MisdirectedError,
    UriTooLongError,
)

Heads: TypeAlias = dict[bytes, bytes]
Scope: TypeAlias = Any  # an ASGI scope

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
_SINGULAR = frozenset(
    {b"host", b"content-type", b"content-length", b"content-encoding", b"idempotency-key", b"authorization"}
    | {b"forebay-budget"}
)
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)
_TWICE = (("authorization", "was sent twice"),)
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_HIDDEN_IN_PATH = re.compile(rb"%2f|%5c|%00", re.IGNORECASE)
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES = frozenset({b"none", b"same-origin"})
_PLAIN_ENCODINGS = frozenset({b"identity", b""})
_HOSTS_CACHED_MAX = 64
_TYPES_CACHED_MAX = 64
VALUE_SHOWN_MAX = 60  # characters of a value that a message repeats
TASKS_NAMED_MAX = 10  # in a message
_JSON_CHARSETS = frozenset({"", "utf-8", "utf8", "us-ascii"})


def hosts_allowed(settings: Settings, *, keyed: bool) -> frozenset[str]:
    """Return the names of Host to answer for. With keys a page of another origin has nothing to abuse, and
    the server is known by names it cannot know: any, unless some are set."""
    if keyed and not settings.hosts_allowed:
        return frozenset({"*"})
    return LOOPBACK_NAMES | frozenset(settings.hosts_allowed)


class Doorman:
    """Checks every request before anything of its body is read."""

    def __init__(self, hosts_allowed: frozenset[str] | None) -> None:
        self._allowed = LOOPBACK_NAMES if hosts_allowed is None else hosts_allowed
        self._any = "*" in self._allowed
        self._known: dict[bytes, bool] = {}

    def check(self, scope: Scope) -> Heads:
        """Return the headers by name.

        Raises a ForebayError for headers, addresses, hosts and origins that are refused everywhere.
        """
        pairs = scope["headers"]
        heads: Heads = dict(pairs)
        if len(heads) != len(pairs):
            _check_doubles(pairs)
        if len(pairs) > HEADERS_MAX:
            raise HeadersTooLargeError(f"more than {HEADERS_MAX} headers", limit=HEADERS_MAX)
        if len(b"".join(heads)) + len(b"".join(heads.values())) > HEADERS_BYTES_MAX:
            raise HeadersTooLargeError(
                f"more than {HEADERS_BYTES_MAX} bytes of headers", limit=HEADERS_BYTES_MAX
            )
        raw_path = scope.get("raw_path") or b""
        if len(raw_path) + len(scope["query_string"]) > PATH_BYTES_MAX:
            raise UriTooLongError(f"more than {PATH_BYTES_MAX} bytes of address", limit=PATH_BYTES_MAX)
        if b"%" in raw_path:
            _check_escapes(raw_path)
        self._check_host(heads.get(b"host"), scope.get("http_version", "1.1"))
        if scope["method"] not in _SAFE_METHODS:
            _check_intent(heads)
        return heads

    def knows(self, host: bytes | None) -> bool:
        """Say whether a request was answered for this host before."""
        return host is not None and self._known.get(host) is True

    def _check_host(self, host: bytes | None, http_version: str) -> None:
        if host is None:
            if http_version == "1.0":
                return
            raise MalformedError("the Host header is missing")
        known = self._known.get(host)
        if known is None:
            known = self._answers_for(host)
            if len(self._known) >= _HOSTS_CACHED_MAX:  # whoever makes names up must not keep the real one out
                self._known.clear()
            self._known[host] = known
        if not known:
            raise MisdirectedError(
                "this server answers for loopback names only; allow others with the setting hosts_allowed"
                if self._allowed == LOOPBACK_NAMES
                else "this host name is not among hosts_allowed"
            )

    def _answers_for(self, host: bytes) -> bool:
        match = _HOST.fullmatch(host.decode("latin-1"))
        if match is None:
            raise MalformedError("the Host header is not a host name")
        return self._any or match[1].lower().rstrip(".") in self._allowed


def _check_doubles(pairs: Iterable[tuple[bytes, bytes]]) -> None:
    seen: set[bytes] = set()
    for name, _ in pairs:
        if name in seen and name == b"authorization":
            raise UnauthorizedError("the header authorization was sent twice", errors=_TWICE)
        if name in seen and name in _SINGULAR:
            raise MalformedError(f"the header {name.decode('latin-1')} was sent twice")
        seen.add(name)


def _check_escapes(raw_path: bytes) -> None:
    if _BAD_ESCAPE.search(raw_path) or _HIDDEN_IN_PATH.search(raw_path):
        raise NotFoundError("no such address")
    try:
        unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError:
        raise NotFoundError("no such address") from None


def _check_intent(heads: Heads) -> None:
    """A page of another origin must not be able to submit, cancel or pause (no key protects loopback)."""
    origin = heads.get(b"origin")
    if origin is not None and origin.partition(b"://")[2] != heads.get(b"host"):
        raise CrossOriginError
    if heads.get(b"sec-fetch-site", b"none") not in _OWN_SITES:
        raise CrossOriginError
    expect = heads.get(b"expect")
    if expect is not None and expect.lower() != b"100-continue":
        raise ExpectationError("only 100-continue is understood")


def media_type(heads: Heads) -> str:
    """Return the media type in lower case, "" when there is none.

    Raises MediaTypeError for an encoded body and for a charset other than UTF-8.
    """
    if heads.get(b"content-encoding", b"identity").strip().lower() not in _PLAIN_ENCODINGS:
        raise MediaTypeError("encoded bodies are not taken: send it without Content-Encoding")
    value = heads.get(b"content-type")
    return "" if value is None else _media_type(value)


@lru_cache(maxsize=_TYPES_CACHED_MAX)
def _media_type(value: bytes) -> str:
    kind, _, params = value.decode("latin-1").lower().partition(";")
    for param in params.split(";"):
        name, _, text = param.strip().partition("=")
        if name == "charset" and text.strip('" ') not in _JSON_CHARSETS:
            raise MediaTypeError("the charset must be utf-8")
    return kind.strip()


def require_json(heads: Heads) -> None:
    """Raise MediaTypeError unless the body says it is JSON. No Content-Type is not JSON: a browser can be
    made to send such a body across sites without asking."""
    kind = media_type(heads)
    if kind != "application/json":
        raise MediaTypeError("Content-Type must be application/json (application/x-ndjson for many jobs)")


def content_length(heads: Heads) -> int | None:
    """Return the announced length, None when there is none. Raises MalformedError for anything odd, and for
    any coding of the transfer but chunked: the bytes would be taken for something that they are not."""
    value = heads.get(b"content-length")
    if value is None:
        if heads.get(b"transfer-encoding", b"chunked").strip().lower() != b"chunked":
            raise MalformedError("Transfer-Encoding can be chunked alone")
        return None
    if not value.isdigit() or len(value) > 19:
        raise MalformedError("Content-Length is not a number")
    if b"transfer-encoding" in heads:
        raise MalformedError("Content-Length and Transfer-Encoding exclude each other")
    return int(value)


def query_of(scope: Scope, names: frozenset[str], *, prefixes: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the query parameters. Raises InvalidError naming any that is unknown, doubled or garbled."""
    text = scope["query_string"]
    if not text:
        return {}
    found: dict[str, str] = {}
    parts = text.split(b"&")
    if len(parts) > QUERY_PARAMS_MAX:
        raise InvalidError(f"more than {QUERY_PARAMS_MAX} query parameters", limit=QUERY_PARAMS_MAX)
    for part in parts:
        name_b, _, value_b = part.partition(b"=")
        name, value = _unescaped(name_b), _unescaped(value_b)
        if name not in names and (name in prefixes or not name.startswith(prefixes or ("\0",))):
            raise InvalidError(
                f"unknown query parameter{nearest(name, names)}", errors=((name, "is unknown"),)
            )
        if name in found:
            raise InvalidError(f"query parameter {name} was given twice", errors=((name, "was given twice"),))
        found[name] = value
    return found


def _unescaped(text: bytes) -> str:
    try:
        if _BAD_ESCAPE.search(text):
            raise ValueError
        return unquote_to_bytes(text.replace(b"+", b" ")).decode()
    except ValueError:
        raise InvalidError(
            "the query is not percent-encoded UTF-8", errors=(("query", "encoding"),)
        ) from None


def nearest(name: str, names: Iterable[str]) -> str:
    """Return ": 'nam' (did you mean 'name'?)" for a message, safe to show."""
    shown = ascii(name[:64])
    close = _close(name, names)
    return f": {shown} (did you mean {close[0]!r}?)" if close else f": {shown}"


def _close(name: str, names: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(name[:64], list(names), n=1, cutoff=0.5)


def shown(value: object) -> str:
    """Return a value for a message: a scalar as JSON, cut; of anything else only what it is."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, str):
        short = value if len(value) <= VALUE_SHOWN_MAX else value[: VALUE_SHOWN_MAX - 1] + "…"
        # What a terminal would obey, or hide, is written as an escape.
        return json.dumps(short, ensure_ascii=not short.isprintable())
    text = json.dumps(value)
    return text if len(text) <= VALUE_SHOWN_MAX else text[: VALUE_SHOWN_MAX - 1] + "…"


def unknown_task(task: str, served: Iterable[str]) -> UnknownTaskError:
    """Return the error that names the nearest served task, else some of those served."""
    names = sorted(served)
    if _close(task, names):
        return UnknownTaskError(f"no such task{nearest(task, names)}")
    some = ", ".join(names[:TASKS_NAMED_MAX]) or "none"
    more = ", …" if len(names) > TASKS_NAMED_MAX else ""
    return UnknownTaskError(f"no such task: {task[:64]!a} (served: {some}{more})")


def wait_s(value: str) -> float:
    """Return `?wait=` in seconds, clamped to WAIT_MAX_S. Raises InvalidError for what is no duration."""
    if _NEGATIVE.fullmatch(value):
        return 0.0
    try:
        return min(WAIT_MAX_S, duration_s(value))
    except ValueError as error:
        raise InvalidError(f"wait: {error}", errors=(("wait", str(error)),)) from None


_NEGATIVE = re.compile(r"-[0-9]{1,18}(\.[0-9]{1,18})?", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]{1,17}", re.ASCII)
_PREFER_WAIT = re.compile(rb"(?:^|[,;])\s*wait\s*=\s*\"?([0-9]{1,9})\"?\s*(?=[,;]|$)", re.IGNORECASE)
_PREFER_ASYNC = re.compile(rb"(?:^|[,;])\s*respond-async\s*(?=[,;]|$)", re.IGNORECASE)


def prefer_wait_s(heads: Heads) -> float | None:
    """Return the seconds of `Prefer: wait=N`, clamped, None when nothing is preferred (RFC 7240)."""
    prefer = heads.get(b"prefer")
    if prefer is None:
        return None
    match = _PREFER_WAIT.search(prefer)
    return None if match is None else min(WAIT_MAX_S, float(match[1]))


def prefers_async(heads: Heads) -> bool:
    """Say whether the client prefers a job to an answer: `Prefer: respond-async` (RFC 7240)."""
    prefer = heads.get(b"prefer")
    return prefer is not None and _PREFER_ASYNC.search(prefer) is not None


def accepts_events(heads: Heads) -> bool:
    """Say whether the client asks for Server-Sent Events by name; `*/*` means JSON."""
    return b"text/event-stream" in heads.get(b"accept", b"").lower()


def integer_of(query: Mapping[str, str], name: str, *, default: int, low: int, high: int) -> int:
    """Return an integer parameter. Above `high` it is clamped; anything else wrong is InvalidError."""
    value = query.get(name)
    if value is None:
        return default
    if _INTEGER.fullmatch(value) is None or int(value) < low:
        rule = f"must be an integer from {low} to {high}, not {shown(value)}"
        raise InvalidError(f"{name} {rule}", errors=((name, rule),))
    return min(high, int(value))
