"""open_engine, subject_for: the engine that settings or a URL name; knows every adapter, as wiring does."""

import os
import tempfile
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from forebay.brokers.relay import Relay, RelayTrial
from forebay.brokers.relay.engine import relayed
from forebay.brokers.sealed import sealed, vault_for
from forebay.brokers.spooled import Bounds, spooled
from forebay.brokers.sqlite import SqliteBroker
from forebay.clock import SystemClock
from forebay.config import Settings, data_directory
from forebay.core.retention import Retention
from forebay.deliveries import DELIVERIES
from forebay.errors import ConfigError, ForebayError
from forebay.ports.broker import Broker, Capabilities
from forebay.ports.clock import Clock
from forebay.values import engine_url

if TYPE_CHECKING:  # who serves needs no checks
    from forebay.conformance.subject import Subject

POSTGRES: Final = ("postgresql", "postgres")
REDIS: Final = ("redis", "rediss")
STORES: Final = (*POSTGRES, *REDIS)  # what servers share, and may stand behind a message broker
SCHEMES: Final = ("sqlite", *STORES)
FORMS: Final = (
    "sqlite:DIRECTORY",
    "postgresql://…",
    "redis://…",
    *(f"{each}://…" for each in DELIVERIES if each not in ("amqps", "tls")),
)
SPOOL: Final = "spool"  # directory of the data directory
ENTRY_POINTS: Final = "forebay.engines"  # engines of others by the scheme of their URL; for `forebay conform`


class Engine(NamedTuple):
    """An engine that we ship: what a page about it says, and all of it is true by its own words."""

    name: str
    url: str  # how the setting is written
    extra: str | None  # what must be installed for it
    clock: str  # whose time it goes by
    served: Capabilities  # what it can do when it serves
    checked: Capabilities  # and when it is checked
    durable_with: str = ""  # what its server must be set to for that


async def open_engine(
    settings: Settings,
    clock: Clock,
    *,
    on_broken: Callable[[ForebayError], None] | None = None,
    on_gone: Callable[[ForebayError], None] | None = None,
    on_delivery: Callable[[BaseException | None], None] | None = None,
    on_failure: Callable[[str, BaseException], None] | None = None,
) -> Broker:
    """Open the engine the settings name, sealed where there are keys. Raises ForebayError with one line.

    `on_delivery` hears why the message broker went away, and None when it is back.
    `on_failure` hears what keeps a spool from handing over that is not the engine's absence.
    """
    scheme = _scheme_of(settings.broker or "sqlite:")
    if scheme not in SCHEMES and scheme not in DELIVERIES:
        raise ConfigError(f"broker: {scheme[:60]!r} is no engine here: {', '.join(FORMS)}; or leave it out")
    if settings.broker is not None and "://" not in settings.broker and scheme != "sqlite":
        raise ConfigError(f"broker: {scheme[:60]!r} alone is no URL: {', '.join(FORMS)}; or leave it out")
    _check_store(scheme, settings.store)
    directory = data_directory(settings)
    told = settings.payload_keys
    vault = vault_for(directory, None if told is None else told.reveal())
    kept = Retention.of(settings.retention, settings.retention_failed)
    broker: Broker
    if scheme == "sqlite":
        if settings.spool:
            raise ConfigError("spool: the embedded engine is never away; leave it 0")
        broker = await SqliteBroker.open(
            directory,
            clock=clock,
            retention_s=kept.ended_s,
            dead_s=kept.dead_s,
            on_broken=on_broken,
            on_gone=on_gone,
        )
    else:
        _make(directory)
        broker = await _open_shared(settings, clock, kept, on_delivery or (lambda _: None))
        if settings.spool:
            broker = await _spooled(broker, directory, settings, clock, on_failure)
    if vault is None:
        return broker
    vault.mark(directory)
    return sealed(broker, vault)


def check_url(what: str, url: str) -> None:
    """Refuse a URL whose error texts would show a part of its password. Raises ConfigError."""
    try:
        engine_url(url)
    except ValueError as error:
        raise ConfigError(f"{what}: {error}") from None


def _scheme_of(url: str) -> str:
    return url.partition(":")[0]


def _check_store(scheme: str, store: str | None) -> None:
    """Refuse a message broker without a store behind it, and a store where there is none."""
    if scheme not in DELIVERIES:
        if store is not None:
            raise ConfigError(f"store: broker {scheme}: keeps the jobs itself; leave store out")
        return
    name = DELIVERIES[scheme].name
    if store is None:
        raise ConfigError(
            f"store: {name} delivers, and needs a store beside it that keeps the jobs:"
            " postgresql://… or redis://…"
        )
    behind = _scheme_of(store)
    if behind not in STORES:
        why = "has one owner" if behind == "sqlite" else "is no store of jobs"
        raise ConfigError(f"store: {behind[:60]}: {why}; behind {name} stands postgresql://… or redis://…")


async def _open_shared(
    settings: Settings, clock: Clock, kept: Retention, on_delivery: Callable[[BaseException | None], None]
) -> Broker:
    """Open a store, and the message broker before it where one is named."""
    url = settings.broker or ""
    delivery = DELIVERIES.get(_scheme_of(url))
    if delivery is None:
        return await _open_store(url, clock, kept)
    transport = await delivery.connect(url)
    try:
        store = await _open_store(settings.store or "", clock, kept)
    except BaseException:
        await transport.close()
        raise
    relay = await Relay.open(
        store, transport, clock=clock, on_down=on_delivery, on_up=lambda: on_delivery(None)
    )
    return relayed(relay)


async def _open_store(url: str, clock: Clock, kept: Retention) -> Broker:
    opens = _open_postgres if _scheme_of(url) in POSTGRES else _open_redis
    return await opens(url, clock, kept)


async def _spooled(
    broker: Broker,
    directory: Path,
    settings: Settings,
    clock: Clock,
    on_failure: Callable[[str, BaseException], None] | None,
) -> Broker:
    bounds = Bounds(settings.spool, settings.spool_bytes_max, settings.spool_age_max)
    try:
        return await spooled(broker, directory / SPOOL, bounds, clock, on_failure=on_failure)
    except BaseException:
        await broker.close()
        raise


def _make(directory: Path) -> None:
    """Make the place of what this server alone keeps: secrets of its own, blobs when nothing else is said."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"data: {directory}: {error.strerror}") from None


async def _open_postgres(url: str, clock: Clock, kept: Retention) -> Broker:
    from forebay.brokers.postgres import PostgresBroker  # its driver is an extra

    return await PostgresBroker.open(url, clock=clock, retention_s=kept.ended_s, dead_s=kept.dead_s)


async def _open_redis(url: str, clock: Clock, kept: Retention) -> Broker:
    from forebay.brokers.redis import RedisBroker  # its driver is an extra

    return await RedisBroker.open(url, clock=clock, retention_s=kept.ended_s, dead_s=kept.dead_s)


def shipped() -> tuple[Engine, ...]:
    """Return the engines that a setting can name, each with what it says of itself."""
    from forebay.brokers.postgres import PostgresBroker, PostgresTrial
    from forebay.brokers.redis import RedisBroker, RedisTrial
    from forebay.brokers.sqlite import SqliteTrial

    return (
        Engine(
            "embedded SQLite",
            "none, or `sqlite:DIRECTORY`",
            None,
            "this machine's",
            SqliteBroker.capabilities,
            SqliteTrial.capabilities,
        ),
        Engine(
            "PostgreSQL",
            "`postgresql://user@host:port/database`",
            "postgres",
            "the database's",
            PostgresBroker.SERVED,
            PostgresTrial.capabilities,
        ),
        Engine(
            "Redis, Valkey",
            "`redis://user@host:port/0`",
            "redis",
            "the Redis server's",
            RedisBroker.SERVED,
            RedisTrial.capabilities,
            "`appendonly yes` and `appendfsync always`",
        ),
    )


def subject_for(url: str, factory: str | None = None, *, store: str | None = None) -> "Subject":
    """Return the engine at a URL as the checks of the contract get it, in a place of its own there.

    `store`: what keeps the jobs behind a message broker.
    `factory`: `module:factory` of an engine of somebody else's; so are entry points named like the URL's
    scheme. Raises ConfigError with one line.
    """
    from forebay.brokers.memory import MemoryTrial
    from forebay.brokers.postgres import PostgresTrial
    from forebay.brokers.redis import RedisTrial
    from forebay.brokers.sqlite import SqliteTrial
    from forebay.conformance.fixtures import RETENTION_S, T0
    from forebay.conformance.subject import StandingClock, subject_named

    if factory is not None:
        return subject_named(factory, url)
    check_url("broker", url)
    scheme, _, rest = url.partition(":")
    _check_store(scheme, store)
    if scheme in DELIVERIES:
        behind = subject_for(store or "")
        assert isinstance(behind, PostgresTrial | RedisTrial)
        return RelayTrial(behind, lambda: DELIVERIES[scheme].connect(url), clock=SystemClock())
    if scheme == "memory":
        return MemoryTrial(retention_s=RETENTION_S)
    if scheme == "sqlite":
        root = Path(rest.removeprefix("//") or tempfile.gettempdir())
        return SqliteTrial(root, clock_at=StandingClock, at=T0, retention_s=RETENTION_S)
    if scheme in REDIS:
        return RedisTrial(url, clock_at=StandingClock, at=T0, retention_s=RETENTION_S)
    if scheme in POSTGRES:
        return PostgresTrial(url, clock_at=StandingClock, at=T0, retention_s=RETENTION_S)
    theirs = list(entry_points(group=ENTRY_POINTS, name=scheme))
    if not theirs:
        known = ", ".join(f"{each}:" for each in ("memory", *SCHEMES, *DELIVERIES))
        raise ConfigError(f"no engine for {scheme[:60]!r}: {known}, or --engine module:factory")
    return subject_named(theirs[0].value, url)
