"""What the settings say of blobs, put together: the keeper of a server, the terms of its children."""

import os
from collections.abc import Callable

from forebay.blobs.keeper import Keeper
from forebay.blobs.opening import open_blobs, place_of
from forebay.config import Settings
from forebay.core.blobs import BlobTerms
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock

CACHE = "blob-cache"  # directory of the data directory


def open_keeper(
    settings: Settings, broker: Broker, clock: Clock, *, on_failure: Callable[[str, BaseException], None]
) -> Keeper:
    """Return the keeper of what is too large for the store. Raises ConfigError."""
    store = open_blobs(place_of(settings.blobs, settings.data), reserve_b=settings.blob_disk_reserve)
    if settings.blobs is None:  # ours alone, as the lock on the data says: nobody writes yet
        store.clear_unfinished(clock.now())
    return Keeper(
        store,
        held=lambda ids: broker.held(ids, now=clock.now()),
        clock=clock,
        grace_s=settings.blob_grace,
        on_failure=on_failure,
    )


def blob_terms(settings: Settings) -> BlobTerms:
    """Return what a child is told."""
    return BlobTerms(
        place=place_of(settings.blobs, settings.data),
        cache=os.path.join(os.path.abspath(settings.data), CACHE),
        bytes_max=settings.blob_bytes_max,
        payload_bytes_max=settings.payload_bytes_max,
        cache_bytes_max=settings.blob_cache_bytes_max,
        reserve_b=settings.blob_disk_reserve,
        sources=settings.blob_sources,
    )
