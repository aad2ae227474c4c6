"""The arguments of app.upstream, read: where a model server is, and what bounds a call to it."""

import re
from dataclasses import replace
from typing import Any, Final, cast
from urllib.parse import urlsplit

from forebay.core.limiter import LimitPolicy
from forebay.core.saturation import SaturationSpec
from forebay.core.upstream import UpstreamSpec
from forebay.declare.instead import Instead, read_breaker
from forebay.declare.options import Reader, refuse
from forebay.declare.saturation import Saturation
from forebay.declare.signature import Signature
from forebay.declare.task import DOC_LENGTH_MAX, Task, read_spec
from forebay.errors import AppError

CALLS_MAX: Final = 1_024  # to one upstream at once
AUTO_CALLS_MAX: Final = 256
METHODS: Final = ("POST", "PUT", "PATCH")
OWN_HEADERS: Final = frozenset(
    {"content-length", "content-type", "transfer-encoding", "connection", "host", "accept-encoding"}
)
# What @app.task takes and app.upstream does not: it says nothing of calls to a server.
_UNUSED: Final[dict[str, Any]] = {
    "batch_max": 1,
    "batch_wait": None,
    "concurrency": None,
    "load_timeout": "10m",
    "reserve": 0.0,
    "replicas": None,
    "devices": None,
    "recycle_after": None,
    "recycle_memory": None,
    "on_version": "run",
    "deaths_max": 2,
    "quarantine_deaths": None,
}
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_VALUE = re.compile(r"[\x20-\x7e]{0,8000}", re.ASCII)


def upstream_task(where: str, given: dict[str, Any], instead: Instead) -> Task:
    """Return the task. Raises AppError with one sentence naming argument, rule and value."""
    read = Reader(where)
    breaker, description = given["breaker"], given["description"]
    if breaker is False and instead.given:
        raise refuse(where, "breaker", "a breaker where fallback is given", False)
    policy, ignore = read_breaker(where, None if isinstance(breaker, bool) else breaker, needed=True)
    if not isinstance(description, str):
        raise refuse(where, "description", "a text", description)
    upstream = read_upstream(read, given)
    signature = Signature()
    return Task(
        spec=replace(
            read_spec(read, given["name"], _elsewhere, given | _UNUSED, signature),
            kind="upstream",
            doc=description[:DOC_LENGTH_MAX],
            upstream=upstream,
            concurrency=max(2, upstream.limit.most),  # calls run beside each other, if only one at a time
            breaker=None if breaker is False else policy,
            fallback=instead.task,
            canned=instead.canned,
        ),
        target=_elsewhere,
        signature=signature,
        breaker_ignore=ignore,
    )


def _elsewhere(_: object) -> object:
    """Stand for the handler of an upstream, which is behind its URL."""
    raise AppError("an upstream is called by the server that serves it")


def read_upstream(read: Reader, given: dict[str, Any]) -> UpstreamSpec:
    """Return the spec. Raises AppError with one sentence naming argument, rule and value."""
    url, headers = read.url("url", given["url"]), _headers(read, given["headers"])
    return UpstreamSpec(
        url=url,
        method=read.choice("method", given["method"], METHODS),
        headers=headers,
        limit=_limit(read, given["concurrency"]),
        connect_s=read.seconds("connect_timeout", given["connect_timeout"]),
        first_byte_s=read.seconds("first_byte_timeout", given["first_byte_timeout"]),
        idle_s=read.seconds("idle_timeout", given["idle_timeout"]),
        answer_bytes_max=read.size("answer_bytes_max", given["answer_bytes_max"]),
        gate=_gate(read, given["gate"], url, headers),
    )


def _gate(
    read: Reader, value: object, url: str, headers: tuple[tuple[str, str], ...]
) -> SaturationSpec | None:
    if value is None:
        return None
    if not isinstance(value, Saturation):
        raise refuse(read.where, "gate", "a forebay.Saturation", value)
    origin = _origin(url)
    page = value.url or f"{origin}/metrics"
    return SaturationSpec(
        url=page,
        metric=value.metric,
        labels=value.labels,
        of=value.of,
        policy=value.policy,
        headers=headers if _origin(page) == origin else (),  # a key is told to nobody else
    )


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def _headers(read: Reader, value: object) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise refuse(read.where, "headers", "a dict of texts", type(value).__name__)
    found: list[tuple[str, str]] = []
    for name, text in cast("dict[object, object]", value).items():
        if not isinstance(name, str) or _TOKEN.fullmatch(name) is None or name.lower() in OWN_HEADERS:
            raise refuse(read.where, "headers", "names of headers that are not Forebay's own to set", name)
        if not isinstance(text, str) or _VALUE.fullmatch(text) is None:
            # The value may be a key: it is not shown.
            rule = "printable ASCII without line breaks, at most 8,000 characters"
            raise refuse(read.where, f"headers[{name!r}]", rule, type(text).__name__)
        if any(name.lower() == other.lower() for other, _ in found):
            raise refuse(read.where, "headers", "each name once, whatever its case", name)
        found.append((name, text))
    return tuple(found)


def _limit(read: Reader, value: object) -> LimitPolicy:
    if value == "auto":
        return LimitPolicy(rule="gradient", most=AUTO_CALLS_MAX)
    if value == "aimd":
        return LimitPolicy(rule="aimd", most=AUTO_CALLS_MAX)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= CALLS_MAX:
        return LimitPolicy(rule="fixed", start=value, most=value)
    raise refuse(
        read.where, "concurrency", f'"auto", "aimd" or a whole number from 1 to {CALLS_MAX:,}', value
    )
