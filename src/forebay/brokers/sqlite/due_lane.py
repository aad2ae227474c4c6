"""DueLane: the queued jobs of one task, priority and tenant where deadlines decide; some 350 bytes a job."""

import math
from collections.abc import Callable
from heapq import nlargest
from typing import NamedTuple

from forebay.brokers.sqlite.heap import LazyHeap
from forebay.brokers.sqlite.journal import Journal
from forebay.core.job import AGEING_S
from forebay.core.ledger_index import SortedKeys


class _Stand(NamedTuple):
    key: tuple[float, int]
    ready_at: float


class DueLane:
    """What a Lane is, for keys that come in any order. Every verb is O(log n) but for ranks, O(n / 1024)."""

    def __init__(self, priority: int, journal: Journal, ending: LazyHeap) -> None:
        self.add_s = priority * AGEING_S
        self._journal = journal
        self._ending = ending
        self._stands: dict[int, _Stand] = {}
        self._order: SortedKeys[tuple[float, int]] = SortedKeys()
        self._ages = LazyHeap()
        self.lapsed: set[int] = set()  # stepped over by a lease, not yet ended by a sweep

    def __len__(self) -> int:
        return len(self._stands)

    def push(self, seq: int, ready_at: float, at: float) -> None:
        """Put a job in its place; `at` is what its key is made of."""
        stand = _Stand((at + self.add_s, seq), ready_at)
        self._add(seq, stand)
        self._journal.undo_by(self._drop, seq)

    def _add(self, seq: int, stand: _Stand) -> None:
        self._stands[seq] = stand
        self._order.add(stand.key)
        self._ages.push(stand.ready_at, seq)

    def _drop(self, seq: int) -> _Stand:
        stand = self._stands.pop(seq)
        self._order.remove(stand.key)
        self._ages.discard(seq)
        self.lapsed.discard(seq)
        return stand

    def head(self, now: float) -> tuple[float, int] | None:
        """Return (key, seq) of the most urgent job that has not lapsed."""
        first = self._order.first()
        if first is not None and not self.lapsed and self._ending.keys.get(first[1], math.inf) > now:
            return first
        for key in self._order:  # the lapsed ones stay until the sweep, which is soon
            if key[1] in self.lapsed:
                continue
            if self._ending.keys.get(key[1], math.inf) > now:
                return key
            self.lapsed.add(key[1])
        return None

    def take(self, limit: int, now: float, bound: tuple[float, int] | None, out: list[int]) -> list[int]:
        """Move up to `limit` jobs before `bound` into `out`; returns them: all stand beside a line."""
        taken: list[int] = []
        while len(taken) < limit and (head := self.head(now)) is not None:
            if bound is not None and head > bound:
                break
            self.remove(head[1])
            taken.append(head[1])
        out += taken
        return taken

    def remove(self, seq: int) -> bool:
        """Take a job out; False when it is not here."""
        if seq not in self._stands:
            return False
        self._journal.undo_by(self._add, seq, self._drop(seq))
        return True

    def oldest_at(self) -> float | None:
        """Return the ready time of the job that has been ready longest."""
        top = self._ages.top()
        return None if top is None else top[0]

    def ahead_of(self, key: float, seq: int) -> int:
        """Return how many jobs here come before (key, seq)."""
        return self._order.rank((key, seq))

    def lowest_seq(self) -> int | None:
        """Return the lowest sequence here; None when it is empty."""
        return min(self._stands, default=None)

    def seqs(self) -> list[int]:
        """Return the sequences of all jobs here."""
        return list(self._stands)

    def newest(self, below: int, limit: int) -> list[int]:
        """Return the highest sequences here below one, highest first, `limit` at most."""
        return nlargest(limit, (seq for seq in self._stands if seq < below))

    def saved(self) -> Callable[[], None]:
        """Return the way back: nothing, each change is in the journal by itself."""
        return lambda: None
