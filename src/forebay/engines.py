"""open_engine: the engine that the settings name, ready to use; knows every adapter, as wiring does."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from forebay.brokers.sealed import sealed, vault_for
from forebay.brokers.sqlite import SqliteBroker
from forebay.config import Settings, data_directory
from forebay.core.retention import Retention
from forebay.errors import ConfigError, ForebayError
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock

SCHEMES: Final = ("sqlite", "postgresql", "postgres")


async def open_engine(
    settings: Settings,
    clock: Clock,
    *,
    on_broken: Callable[[ForebayError], None] | None = None,
    on_gone: Callable[[ForebayError], None] | None = None,
) -> Broker:
    """Open the engine the settings name, sealed where there are keys. Raises ForebayError with one line."""
    scheme = (settings.broker or "sqlite:").partition(":")[0]
    if scheme not in SCHEMES:
        raise ConfigError(f"broker: the engine {scheme!r} is not available in this version; leave it out")
    directory = data_directory(settings)
    told = settings.payload_keys
    vault = vault_for(directory, None if told is None else told.reveal())
    kept = Retention.of(settings.retention, settings.retention_failed)
    broker: Broker
    if scheme == "sqlite":
        broker = await SqliteBroker.open(
            directory,
            clock=clock,
            retention_s=kept.ended_s,
            dead_s=kept.dead_s,
            on_broken=on_broken,
            on_gone=on_gone,
        )
    else:
        broker = await _open_postgres(settings.broker or "", directory, clock, kept)
    if vault is None:
        return broker
    vault.mark(directory)
    return sealed(broker, vault)


async def _open_postgres(url: str, directory: Path, clock: Clock, kept: Retention) -> Broker:
    from forebay.brokers.postgres import PostgresBroker  # its driver is an extra

    try:  # for what this server alone keeps: secrets of its own, blobs when nothing else is said
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"data: {directory}: {error.strerror}") from None
    return await PostgresBroker.open(url, clock=clock, retention_s=kept.ended_s, dead_s=kept.dead_s)
