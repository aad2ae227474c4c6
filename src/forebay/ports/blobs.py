"""BlobStore: the contract of a place for large bytes: written once, whole or not at all, read in ranges.

The verbs block; a server calls them in threads. Ids are made by core.blobs and nowhere else; any other text
is unknown to every verb and never reaches a path or a key. What is read between `commit` and `delete` is
what was written. Nothing of a writer that was not committed can ever be read.
"""

from collections.abc import Iterator
from typing import Protocol

from forebay.core.blobs import BlobInfo


class BlobWriter(Protocol):
    """One blob on its way in. For one thread at a time."""

    def write(self, data: bytes) -> None:
        """Add bytes. Raises StoreFullError or StoreUnavailableError; abort it then."""
        ...

    def commit(self) -> BlobInfo:
        """Make it whole and durable: from here on it can be read. Errors as in `write`."""
        ...

    def abort(self) -> None:
        """Forget it; nothing of it stays. After a commit, and twice, harmless."""
        ...


class BlobStore(Protocol):
    """A place for blobs."""

    def begin(self, blob_id: str, media_type: str) -> BlobWriter:
        """Return a writer of a new blob. Raises StoreUnavailableError or StoreFullError."""
        ...

    def head(self, blob_id: str) -> BlobInfo | None:
        """Return what is known of a blob, None when there is none."""
        ...

    def read(self, blob_id: str, start: int, size: int) -> bytes:
        """Return up to `size` bytes from `start`; fewer only at the end. Raises NotFoundError."""
        ...

    def path(self, blob_id: str) -> str | None:
        """Return the path of the file that holds exactly its bytes; None when the store has no files here,
        or not this one."""
        ...

    def link(self, blob_id: str, ttl_s: float) -> str | None:
        """Return a URL at which the store itself hands the bytes to anybody for so long; None when it makes
        none."""
        ...

    def delete(self, blob_id: str) -> bool:
        """Forget a blob; False when there was none."""
        ...

    def ids(self) -> Iterator[str]:
        """Yield ids in no order that means anything, also those of blobs that are half gone. While others
        write and delete it still names every blob that is there all the time."""
        ...

    def clear_unfinished(self, before: float) -> int:
        """Remove what writers left behind that began before `before` (seconds since the epoch) and never
        committed; return how many."""
        ...
