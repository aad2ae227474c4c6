"""Tombstones: whose the jobs were that were removed last, so that their tenant hears "gone" and nobody else.

One row of a number and six bytes for each: a keyed hash of id and tenant, which names nobody and does not
tell which other jobs had the same one. Two tables take turns: when one is half of what may be kept, the other
is emptied and filled. So the oldest go first, in the order of removal, for neither an index nor a search.
"""

from collections.abc import Iterable
from typing import Final, cast

import apsw

from forebay.brokers.sqlite.journal import Journal
from forebay.core.numbered_ids import owner_tag

KEPT_MAX: Final = 1_000_000  # about 14 MB
_AFTER: Final = (
    "SELECT seq, tag FROM (SELECT * FROM tombstones_0 UNION ALL SELECT * FROM tombstones_1)"
    " WHERE seq > ? ORDER BY seq LIMIT ?"
)
_CURRENT: Final = "tombstones"  # in meta: which table takes new ones


class Tombstones:
    """The rows of one store. Each verb runs inside its open transaction."""

    def __init__(self, connection: apsw.Connection, journal: Journal, secret: bytes) -> None:
        self._connection = connection
        self._journal = journal
        self._secret = secret
        self._current = 0
        self._count = 0  # in the current table

    def load(self, current: int) -> None:
        """Go on where the store was left."""
        self._current = current
        self._count = int(self._connection.execute(f"SELECT count(*) FROM tombstones_{current}").get or 0)

    def add(self, gone: Iterable[tuple[int, str, str]]) -> None:
        """Remember removed jobs: row, id, tenant. Those of no tenant need none: who sees them sees all."""
        rows = [(seq, owner_tag(self._secret, job_id, tenant)) for seq, job_id, tenant in gone if tenant]
        if not rows:
            return
        self._journal.undo_by(self._set, self._current, self._count)
        if self._count + len(rows) > KEPT_MAX // 2 and self._count:
            self._set(1 - self._current, 0)
            self._connection.execute(f"DELETE FROM tombstones_{self._current}")
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_CURRENT, self._current))
        sql = f"INSERT OR REPLACE INTO tombstones_{self._current} VALUES (?, ?)"
        self._connection.executemany(sql, rows)
        self._count += len(rows)

    def knows(self, seq: int, job_id: str, tenant: str) -> bool:
        """Say whether this removed job is remembered as one of the tenant."""
        sql = (
            "SELECT 1 FROM tombstones_0 WHERE seq = ?1 AND tag = ?2"
            " UNION ALL SELECT 1 FROM tombstones_1 WHERE seq = ?1 AND tag = ?2"
        )
        return self._connection.execute(sql, (seq, owner_tag(self._secret, job_id, tenant))).get is not None

    def after(self, seq: int, limit: int) -> list[tuple[int, int]]:
        """Return rows and tags of removed jobs behind a row, in order."""
        return cast("list[tuple[int, int]]", self._connection.execute(_AFTER, (seq, limit)).fetchall())

    def _set(self, current: int, count: int) -> None:
        self._current, self._count = current, count
