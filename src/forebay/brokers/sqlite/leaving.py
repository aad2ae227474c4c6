"""Leaving: what a store hands over when it is moved to another engine, and how it is put aside afterwards."""

from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, cast

from forebay.brokers.sqlite import schema
from forebay.brokers.sqlite.committer import Committer
from forebay.brokers.sqlite.store import SqlBook
from forebay.core.quarantine import DeadlyInput
from forebay.ports.moving import KeyOf, Tap

MOVED: Final = ".moved"  # behind the name of a file whose jobs are elsewhere
_JOINED: Final = (
    "SELECT n.tenant, n.idempotency_key, n.body_hash, n.seq, j.ms FROM joins n JOIN jobs j ON j.seq = n.seq"
)
_COUNTS: Final = "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM deliveries)"


class Leaving:
    """Reads what no verb tells of."""

    def __init__(self, book: SqlBook, committer: Committer) -> None:
        self._book = book
        self._committer = committer

    def origin(self) -> str:
        """Return what tells this store from all others, after a move too."""
        secret = bytes(self._book.shelf.meta("secret", b""))
        return blake2b(secret, digest_size=16, person=b"forebay origin").hexdigest()

    async def joined(self) -> list[KeyOf]:
        """Return the idempotency keys of submissions that joined a job."""

        def read(book: SqlBook) -> list[KeyOf]:
            rows = cast("list[tuple[Any, ...]]", book.shelf.connection.execute(_JOINED).fetchall())
            text = book.shelf.mint.text
            return [KeyOf(tenant, key, text(ms, seq), hashed) for tenant, key, hashed, seq, ms in rows]

        return await self._committer.read(read)

    async def counts(self) -> tuple[int, int]:
        """Return how many jobs and how many deliveries there are."""

        def read(book: SqlBook) -> tuple[int, int]:
            rows = cast("list[tuple[int, int]]", book.shelf.connection.execute(_COUNTS).fetchall())
            return rows[0]

        return await self._committer.read(read)

    async def deadly(self) -> list[DeadlyInput]:
        """Return every input that killed workers, also those that are not in quarantine yet."""
        return await self._committer.read(lambda book: list(book.shelf.deadly.inputs))

    async def taps(self) -> list[Tap]:
        """Return the tasks that are paused or drain."""

        def read(book: SqlBook) -> list[Tap]:
            found = book.shelf.connection.execute(
                "SELECT name, paused, draining FROM queues WHERE paused OR draining ORDER BY name"
            )
            rows = cast("list[tuple[str, int, int]]", found.fetchall())
            return [Tap(name, bool(paused), bool(draining)) for name, paused, draining in rows]

        return await self._committer.read(read)


def put_aside(directory: Path) -> Path:
    """Rename the file of a closed store, so that nobody serves it anew; return its new name."""
    path = directory / schema.FILE_NAME
    aside = path.with_name(path.name + MOVED)
    path.rename(aside)
    schema.sync_directory(directory)
    return aside


def is_there(directory: Path) -> bool:
    """Say whether a directory has a store."""
    return (directory / schema.FILE_NAME).is_file()


def was_moved(directory: Path) -> bool:
    """Say whether a directory had a store that was moved."""
    return (directory / (schema.FILE_NAME + MOVED)).is_file()
