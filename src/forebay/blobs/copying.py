"""copy_blobs: every blob of one place to another, each checked against its digest."""

import hashlib
from collections.abc import Callable
from typing import Final

from forebay.errors import BlobCorruptError
from forebay.ports.blobs import BlobStore

PIECE_B: Final = 1 << 20


class EndedError(Exception):
    """Whoever wanted the copies is gone."""


def copy_blobs(source: BlobStore, target: BlobStore, ended: Callable[[], bool] = lambda: False) -> int:
    """Copy what is not there yet; return how many those were. Blocks; may be ended and begun again.

    Raises BlobCorruptError for one whose bytes are not what they were, EndedError soon after `ended` says so,
    and what the places raise.
    """
    count = 0
    for blob_id in source.ids():
        about = source.head(blob_id)
        if about is None or target.head(blob_id) == about:  # None: it is half gone
            continue
        writer, digest, at = target.begin(blob_id, about.media_type), hashlib.sha256(), 0
        try:
            while at < about.size and (piece := source.read(blob_id, at, PIECE_B)):
                if ended():
                    raise EndedError
                digest.update(piece)
                writer.write(piece)
                at += len(piece)
            if (at, digest.hexdigest()) != (about.size, about.sha256):
                raise BlobCorruptError(f"the blob {blob_id} is not what was stored; it was not copied")
            writer.commit()
        except BaseException:
            writer.abort()
            raise
        count += 1
    return count
