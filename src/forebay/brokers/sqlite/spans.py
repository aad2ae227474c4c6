"""Spans: which blocks of rows hold jobs of a task or a tenant, so that a listing skips all the others.

An index on jobs would cost every insert. This is one row for each task and tenant in a block of a thousand
rows. It may say too much (an amended or purged job), never too little.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import apsw

BLOCK_BITS: Final = 10
TENANTS_MAX: Final = 32  # in one block; beyond that the block counts as one of every tenant
NOTED_MAX: Final = 10_000  # remembered, so that they are not stored again

_TASK, _TENANT, _CROWD = 0, 1, 2
# Those of tenants that have no jobs in the block any more: a span holds a name.
TIDY: Final = (
    "DELETE FROM spans WHERE kind = 1 AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.seq >= spans.block << 10"
    " AND j.seq < (spans.block + 1) << 10 AND j.tenant = spans.value)"
)
_NOTE: Final = "INSERT OR IGNORE INTO spans VALUES (?, ?, ?)"
_OF_TASK: Final = "SELECT block FROM spans WHERE kind = 0 AND value = ?1 AND block <= ?2"
_ANY: Final = "SELECT DISTINCT block FROM spans WHERE block <= ?1"
_OF_TENANT: Final = (
    "SELECT block FROM spans WHERE kind = 1 AND value = ?1 AND block <= ?2"
    " UNION SELECT block FROM spans WHERE kind = 2 AND value = 0 AND block <= ?2"
)


class Spans:
    """The rows of one store's spans."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._noted: set[tuple[int, str, int]] = set()  # task, tenant, block
        self._tenants: dict[int, int] = {}  # in a block, since the start

    def note(self, task: int, tenant: str, seqs: Iterable[int]) -> None:
        """Store that these rows hold jobs of a task and a tenant. Nearly always that is known."""
        for block in {seq >> BLOCK_BITS for seq in seqs}:
            if (task, tenant, block) not in self._noted:
                self._store(task, tenant, block)

    def _store(self, task: int, tenant: str, block: int) -> None:
        if len(self._noted) >= NOTED_MAX:
            self.forget()
        self._noted.add((task, tenant, block))
        self._connection.execute(_NOTE, (_TASK, task, block))
        many = self._tenants[block] = self._tenants.get(block, 0) + 1
        crowd = many > TENANTS_MAX
        self._connection.execute(_NOTE, (_CROWD, 0, block) if crowd else (_TENANT, tenant, block))

    def forget(self) -> None:
        """Remember nothing of what was stored: it may have been rolled back."""
        self._noted.clear()
        self._tenants.clear()

    def blocks(self, task: int | None, tenant: str | None, below: int) -> Iterator[tuple[int, int]]:
        """Return the first row and the row behind the last of each block that may hold such jobs below a
        row, newest first.
        """
        sql = _OF_TASK
        values: tuple[int | str | None, ...] = (task, below >> BLOCK_BITS)
        if task is None and tenant is None:
            sql, values = _ANY, (below >> BLOCK_BITS,)
        elif task is None:
            sql, values = _OF_TENANT, (tenant, below >> BLOCK_BITS)
        elif tenant is not None:
            sql = f"{_OF_TASK} AND block IN ({_OF_TENANT.replace('?1', '?3')})"
            values = (*values, tenant)
        for (block,) in self._connection.execute(f"{sql} ORDER BY block DESC", values):
            yield block << BLOCK_BITS, min(below, (block + 1) << BLOCK_BITS)

    def purged(self, seqs: Iterable[int], newest: int) -> None:
        """Remove the spans of blocks that a purge of these rows has emptied, but not of the newest: it is
        being filled."""
        blocks = {seq >> BLOCK_BITS for seq in seqs} - {newest >> BLOCK_BITS}
        empty = [(block,) for block in blocks if self._is_empty(block)]
        if empty:
            self._connection.executemany("DELETE FROM spans WHERE block = ?", empty)
            self.forget()

    def _is_empty(self, block: int) -> bool:
        first, behind = block << BLOCK_BITS, (block + 1) << BLOCK_BITS
        sql = "SELECT 1 FROM jobs WHERE seq >= ? AND seq < ? LIMIT 1"
        return self._connection.execute(sql, (first, behind)).get is None
