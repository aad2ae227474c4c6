"""open_blobs: the store that a setting names: a directory or a URL."""

import os
from typing import TYPE_CHECKING

from forebay.errors import ConfigError

if TYPE_CHECKING:
    from forebay.blobs.local import LocalBlobs
    from forebay.blobs.object_store import ObjectBlobs

SCHEMES = ("s3", "gs", "az", "azure", "abfs")
DIRECTORY = "blobs"  # of the data directory


def open_blobs(place: str, *, reserve_b: int = 0) -> "LocalBlobs | ObjectBlobs":
    """Return the store: a path or file:// is a directory, s3://, gs:// and az:// are object stores.

    Raises ConfigError with one line, which names the extra when a library is missing.
    """
    scheme, colon, rest = place.partition("://")
    if not colon or scheme == "file":
        from forebay.blobs.local import LocalBlobs

        return LocalBlobs(rest if colon else place, reserve_b=reserve_b)
    if scheme not in SCHEMES:
        known = ", ".join(f"{one}://" for one in SCHEMES)
        raise ConfigError(f"blobs: {scheme}:// is not known; give a directory or one of {known}")
    from forebay.blobs.object_store import ObjectBlobs

    return ObjectBlobs(place)


def place_of(setting: str | None, data: str) -> str:
    """Return where blobs are when the setting says this: beside the store when it says nothing."""
    return setting or os.path.join(os.path.abspath(data), DIRECTORY)
