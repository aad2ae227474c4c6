"""The options that many commands share, and the connection they ask for."""

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from forebay.cli.show import Stop, complain
from forebay.core.units import print_duration
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from forebay.client import AsyncClient, Client

INSTANT_MAX = 40  # characters
_RFC3339 = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:[Zz]|[+-]\d{2}:\d{2})", re.ASCII
)
REACH_S = 2.0  # a server that has never answered is tried for this long before the command gives up

Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The server. [FOREBAY_URL, default http://127.0.0.1:8080]"),
]
ApiKey = Annotated[
    str | None, typer.Option("--api-key", metavar="KEY", help="The key to send. [FOREBAY_API_KEY]")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Tell and log in JSON, one object a line.")]
Metadata = Annotated[
    list[str] | None, typer.Option("--metadata", metavar="NAME=VALUE", help="May be repeated.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, metavar="N", help="Rows at most.")]
Rate = Annotated[str | None, typer.Option("--rate", metavar="RATE", help='For example "300/s".')]
Task = Annotated[str | None, typer.Option("--task", metavar="TASK", help="Only this task.")]

C = TypeVar("C")


def connect(
    url: str | None, api_key: str | None, retry_for: str = "10s", budget: str | None = None
) -> "Client":
    """Return a client for the command. Raises ConfigError, or Stop for a wrong flag."""
    from forebay.client import Client

    return _open(Client, url, api_key, retry_for, budget)


def connect_async(
    url: str | None, api_key: str | None, retry_for: str, budget: str | None = None
) -> "AsyncClient":
    """As `connect`, awaited."""
    from forebay.client import AsyncClient

    return _open(AsyncClient, url, api_key, retry_for, budget)


def _open(kind: type[C], url: str | None, api_key: str | None, retry_for: str, budget: str | None) -> C:
    from forebay.config import load_settings

    settings = load_settings({"url": url, "api_key": api_key})
    key = settings.api_key.reveal() if settings.api_key is not None else None
    make: Any = kind
    try:
        client: C = make(settings.url, key, retry_for=retry_for, unreachable_for=REACH_S, budget=budget)
    except ForebayError as error:
        raise Stop(str(error), 2) from None
    opened: Any = client
    opened.terms = opened.terms._replace(away=_say_away)
    return client


def _say_away(fault: ForebayError, left_s: float) -> None:
    """Say that a command is not stuck: it waits for its server."""
    complain(f"{fault}; waiting up to {print_duration(left_s)} for it")


def pairs(texts: list[str] | None) -> dict[str, str] | None:
    """Return NAME=VALUE options as an object, None when there are none."""
    found: dict[str, str] = {}
    for text in texts or []:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise Stop(f"--metadata {text!r}: must be NAME=VALUE", 2)
        if name in found:
            raise Stop(f"--metadata {name!r} is given twice", 2)
        found[name] = value
    return found or None


def rate_of(text: str | None, flag: str = "--rate") -> float | None:
    """Return items per second."""
    from forebay.core.units import rate_per_s

    try:
        return None if text is None else rate_per_s(text)
    except ValueError as error:
        raise Stop(f"{flag}: {error}", 2) from None


def budget_of(name: str | None, rate: str | None) -> str | None:
    """Return the budget that a command shares, with its rate where one was given."""
    from forebay.core.budget import read_budget

    if name is None:
        return None
    text = name if rate is None or "=" in name else f"{name}={rate}"
    try:
        read_budget(text)
    except ValueError as error:
        raise Stop(f"--budget: {error}", 2) from None
    return text


def seconds_of(flag: str, text: str) -> float:
    """Return seconds."""
    from forebay.core.units import duration_s

    try:
        return duration_s(text)
    except ValueError as error:
        raise Stop(f"{flag}: {error}", 2) from None


def span_of(flag: str, text: str | None) -> str | None:
    """Return a duration as it was given, checked: more than nothing."""
    if text is not None and seconds_of(flag, text) <= 0:
        raise Stop(f"{flag}: {text!r} is not more than 0", 2)
    return text


def instant_of(flag: str, text: str | None) -> str | None:
    """Return an instant as it was given, checked."""
    if text is None:
        return None
    try:
        if len(text) > INSTANT_MAX or _RFC3339.fullmatch(text) is None:
            raise ValueError
        datetime.fromisoformat(text.upper())
    except ValueError:
        example = "2026-03-01T09:30:00Z"
        raise Stop(f"{flag}: {text!r} is not an RFC 3339 time with a zone, like {example}", 2) from None
    return text


def deadline_of(text: str | None) -> str | None:
    """Return a duration or an instant as it was given, checked by the server's own rule for telling them."""
    flag = "--deadline"
    return instant_of(flag, text) if text is not None and "-" in text else span_of(flag, text)


def status_of(text: str | None) -> str | None:
    """Return statuses and states as they were given, checked."""
    from forebay.core.lifecycle import STATUS

    words = dict.fromkeys([*STATUS.values(), *(state.value for state in STATUS)])
    wrong = [word for word in text.split(",") if word not in words] if text is not None else []
    if wrong:
        raise Stop(f"--status {wrong[0]!r}: must be one of {', '.join(words)}; several with commas", 2)
    return text


def priority_of(text: str | None) -> str | int | None:
    """Return a priority's name, or its number from 0 (most urgent) to 9."""
    if text is None or text in ("high", "normal", "low"):
        return text
    if len(text) == 1 and text in "0123456789":
        return int(text)
    raise Stop(f"--priority {text!r}: must be high, normal, low or a number from 0 to 9", 2)
