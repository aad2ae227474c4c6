"""Leaving: what a store hands over when it is moved to another engine, and how it is put aside afterwards."""

from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, cast

from forebay.brokers.sqlite import schema
from forebay.brokers.sqlite.committer import Committer
from forebay.brokers.sqlite.store import SqlBook
from forebay.core.numbered_ids import Former
from forebay.core.quarantine import DeadlyInput
from forebay.errors import ConfigError
from forebay.ports.moving import KeyOf, Tap

MOVED: Final = ".moved"  # behind the name of a file whose jobs are elsewhere
STONES_EACH_MAX: Final = 5_000
_JOINED: Final = (
    "SELECT n.tenant, n.idempotency_key, n.body_hash, n.seq, j.ms FROM joins n JOIN jobs j ON j.seq = n.seq"
)
_COUNTS: Final = "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM deliveries)"


class Leaving:
    """Reads what no verb tells of."""

    def __init__(self, book: SqlBook, committer: Committer) -> None:
        self._book = book
        self._committer = committer

    async def begin(self) -> str:
        """Return what tells this store from all others. When it is served again before all of it is moved it
        is another one: what arrived elsewhere has stood still since."""
        shelf = self._book.shelf
        await self._committer.later(lambda: shelf.set_meta("leaving", 1))
        secret, turn = bytes(shelf.meta("secret", b"")), int(shelf.meta("served_again", 0))
        told = secret + (b"%d" % turn if turn else b"")
        return blake2b(told, digest_size=16, person=b"forebay origin").hexdigest()

    async def give_up(self) -> None:
        """Let it be another store than the one whose move was begun."""
        await self._committer.later(lambda: served_again(self._book))

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

    async def former(self) -> Former:
        """Return what tells the ids of jobs that were removed."""
        return await self._committer.read(
            lambda book: Former(bytes(book.shelf.meta("secret", b"")), book.shelf.purged_seq)
        )

    async def stones(self, after: int) -> list[tuple[int, int]]:
        """Return whose the removed jobs were, some at a time: rows behind `after`, in order, and tags."""
        return await self._committer.read(lambda book: book.shelf.tombstones.after(after, STONES_EACH_MAX))

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


def served_again(book: SqlBook) -> None:
    """Note that a store whose move was begun is served again."""
    if book.shelf.meta("leaving", 0):
        book.shelf.set_meta("served_again", int(book.shelf.meta("served_again", 0)) + 1)
        book.shelf.set_meta("leaving", 0)


def put_aside(directory: Path) -> Path:
    """Rename the file of a closed store, so that nobody serves it anew; return its new name."""
    path = directory / schema.FILE_NAME
    aside = path.with_name(path.name + MOVED)
    path.rename(aside)
    schema.sync_directory(directory)
    return aside


def check_not_left(directory: Path) -> None:
    """Raise ConfigError for a directory whose jobs are elsewhere: a new store in it would be another one."""
    if was_moved(directory) and not is_there(directory):
        raise ConfigError(
            f"data: {directory}: its jobs were moved to another engine by `forebay migrate`: name that as "
            f"broker; to begin anew here, remove {schema.FILE_NAME}{MOVED}"
        )


def is_there(directory: Path) -> bool:
    """Say whether a directory has a store."""
    return (directory / schema.FILE_NAME).is_file()


def was_moved(directory: Path) -> bool:
    """Say whether a directory had a store that was moved."""
    return (directory / (schema.FILE_NAME + MOVED)).is_file()
