"""Places: from a URL to what is left, or to what takes it in."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from forebay.brokers.sqlite.leaving import is_there, was_moved
from forebay.core.job import Sweep, Transition
from forebay.errors import ConfigError
from forebay.moving.sources import KEPT_S, Shared, SharedStore, Source, Sqlite
from forebay.ports.clock import Clock
from forebay.ports.moving import Arriving
from forebay.values import engine_url

_POSTGRES: Final = frozenset({"postgresql", "postgres"})
_REDIS: Final = frozenset({"redis", "rediss"})
PAIRS: Final = "sqlite: can be moved to postgresql: and redis:, and these two to each other"


class Target(Protocol):
    """An engine that takes in another store."""

    @property
    def arriving(self) -> Arriving:
        """Its way in."""
        ...

    async def sweep(self, *, limit: int, now: float) -> Sweep:
        """Return overdue leases."""
        ...

    def commit(self, transitions: Sequence[Transition], *, now: float) -> Awaitable[list[bool]]:
        """Apply transitions."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...


Opener = Callable[..., Awaitable[Any]]


def target_of(url: str) -> Callable[[Clock], Awaitable[Target]]:
    """Return what opens an engine that jobs are moved to. Raises ConfigError."""
    opens = _shared(url)
    if opens is None:
        raise ConfigError(f"--to: {_scheme(url)!r} takes no store in: {PAIRS}")

    async def opened(clock: Clock) -> Target:
        target: Target = await opens(url, clock=clock, arriving=True)
        return target

    return opened


def source_of(url: str) -> Callable[[Clock], Awaitable[Source]]:
    """Return what opens the store that jobs are moved from. Raises ConfigError when there is none."""
    if url.startswith("sqlite:"):
        directory = _directory(url)
        return lambda clock: Sqlite.open(directory, clock)
    opens = _shared(url)
    if opens is None:
        raise ConfigError(f"--from: {_scheme(url)!r} cannot be left: {PAIRS}")

    async def opened(clock: Clock) -> Source:
        store: SharedStore = await opens(url, clock=clock, retention_s=KEPT_S, leaving=True)
        return Shared(store, clock)

    return opened


def is_same(source: str, target: str) -> bool:
    """Say whether both name one place, as far as their texts tell: whoever logs in, and how.

    Raises ConfigError for a URL that cannot be read.
    """
    places = _place(source), _place(target)
    return None not in places and places[0] == places[1]


def _scheme(url: str) -> str:
    return url.partition(":")[0][:60]


def _check(url: str) -> None:
    """Refuse a URL whose error texts would show a part of its password. Raises ConfigError."""
    try:
        engine_url(url)
    except ValueError as error:
        raise ConfigError(f"--from, --to: a URL {error}") from None


def _place(url: str) -> tuple[str, str] | None:
    """Return the server and the store on it that a URL names; None where no processes share it."""
    _check(url)
    if _scheme(url) in _POSTGRES:
        from forebay.brokers.postgres import Address

        address = Address.of(url)
        return address.label, address.schema
    if _scheme(url) in _REDIS:
        from forebay.brokers.redis import Address as RedisAddress

        there = RedisAddress.of(url)
        return there.label.partition(":")[2], there.name
    return None


def _shared(url: str) -> Opener | None:
    """Return what opens an engine that processes share. Raises ConfigError for a URL that cannot be read."""
    _check(url)
    if _scheme(url) in _POSTGRES:
        from forebay.brokers.postgres import Address, PostgresBroker  # its driver is an extra

        Address.of(url)
        return PostgresBroker.open
    if _scheme(url) in _REDIS:
        from forebay.brokers.redis import Address as RedisAddress
        from forebay.brokers.redis import RedisBroker  # its driver is an extra

        RedisAddress.of(url)
        return RedisBroker.open
    return None


def _directory(source: str) -> Path:
    """Return the directory of a store that is there. Raises ConfigError."""
    directory = Path(source.removeprefix("sqlite:").removeprefix("//") or ".forebay")
    if not is_there(directory):
        moved = "; it was moved before" if was_moved(directory) else ""
        raise ConfigError(f"--from: there is no store in {directory}{moved}")
    return directory
