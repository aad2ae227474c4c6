"""SortedKeys, MomentHeap, Twins: the orders the Ledger keeps its jobs in.

SortedKeys answers everything, ranks too, and costs a bisection for each change. MomentHeap answers only
"what is first" and forgets for nothing: jobs leave by changing, and their old moments are dropped later.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

from forebay.core.job import Job

Moment = tuple[float, str]  # an instant and the id that breaks ties

K = TypeVar("K", bound=Any)


class Twins:
    """Which jobs do the same work, by fingerprint."""

    def __init__(self) -> None:
        self._ids: dict[bytes, list[str]] = {}

    def add(self, job: Job) -> None:
        """Remember a job that has a fingerprint."""
        if job.fingerprint is not None:
            insort(self._ids.setdefault(job.fingerprint, []), job.id)

    def drop(self, job: Job) -> None:
        """Forget it."""
        if job.fingerprint is not None:
            twins = self._ids[job.fingerprint]
            twins.remove(job.id)
            if not twins:
                del self._ids[job.fingerprint]

    def newest(self, fingerprint: bytes) -> str | None:
        """Return the newest job with this fingerprint."""
        twins = self._ids.get(fingerprint)
        return None if twins is None else twins[-1]

    def snapshot(self) -> dict[bytes, list[str]]:
        """Return all of it, for audits."""
        return {fingerprint: list(ids) for fingerprint, ids in self._ids.items()}


BLOCK_MAX = 1_024  # keys in a block before it is split; past a few thousand, moving memory starts to show
BLOCK_MIN = 128  # keys in a block before it joins its neighbour


class SortedKeys(Generic[K]):
    """A set of comparable keys, each at most once. Every verb is O(log n) but for `rank`, O(n / 1024)."""

    __slots__ = ("_blocks", "_lasts")

    def __init__(self) -> None:
        self._blocks: list[list[K]] = []
        self._lasts: list[K] = []  # the largest key of each block

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def __iter__(self) -> Iterator[K]:
        for block in self._blocks:
            yield from block

    def first(self) -> K | None:
        """Return the smallest key, or None when empty."""
        return self._blocks[0][0] if self._blocks else None

    def pop_first(self) -> K | None:
        """Take out and return the smallest key, or None when empty."""
        if not self._blocks:
            return None
        block = self._blocks[0]
        key = block.pop(0)
        if not block:
            del self._blocks[0], self._lasts[0]
        return key

    def add(self, key: K) -> None:
        """Put in a key that is not there yet."""
        lasts = self._lasts
        if not lasts:
            self._blocks.append([key])
            lasts.append(key)
            return
        at = len(lasts) - 1
        if key > lasts[at]:  # most keys are times and come in order
            block = self._blocks[at]
            block.append(key)
            lasts[at] = key
        else:
            at = bisect_left(lasts, key)
            block = self._blocks[at]
            insort(block, key)
        if len(block) > BLOCK_MAX:
            self._split(at)

    def remove(self, key: K) -> None:
        """Take out a key that is there. Raises KeyError when it is not."""
        lasts = self._lasts
        at = bisect_left(lasts, key)
        if at == len(lasts):
            raise KeyError(key)
        block = self._blocks[at]
        inside = 0 if block[0] == key else bisect_left(block, key)
        if block[inside] != key:
            raise KeyError(key)
        del block[inside]
        if not block:
            del self._blocks[at], lasts[at]
            return
        if inside == len(block):
            lasts[at] = block[-1]
        if len(block) < BLOCK_MIN and len(lasts) > 1:
            self._join(min(at, len(lasts) - 2))

    def rank(self, key: K) -> int:
        """Return how many keys are smaller."""
        at = bisect_left(self._lasts, key)
        before = sum(map(len, self._blocks[:at]))
        return before if at == len(self._lasts) else before + bisect_left(self._blocks[at], key)

    def descending(self, below: K | None = None) -> Iterator[K]:
        """Yield the keys smaller than `below` (None: all), largest first. No changes meanwhile."""
        at = len(self._blocks) if below is None else bisect_left(self._lasts, below)
        if below is not None and at < len(self._blocks):
            block = self._blocks[at]
            yield from reversed(block[: bisect_left(block, below)])
        for earlier in reversed(self._blocks[:at]):
            yield from reversed(earlier)

    def _split(self, at: int) -> None:
        block = self._blocks[at]
        half = len(block) // 2
        self._blocks.insert(at + 1, block[half:])
        del block[half:]
        self._lasts.insert(at, block[-1])

    def _join(self, at: int) -> None:
        self._blocks[at] += self._blocks.pop(at + 1)
        del self._lasts[at]
        if len(self._blocks[at]) > BLOCK_MAX:
            self._split(at)


STALE_MAX = 1_024  # stale moments a heap holds beside as many as it has live ones


class MomentHeap:
    """Moments of jobs, earliest first. `is_live` tells a moment that still holds from a stale one.

    A job may be there twice with the same moment; whoever takes several must skip equal neighbours.
    """

    __slots__ = ("_is_live", "_items", "live")

    def __init__(self, is_live: Callable[[Moment], bool]) -> None:
        self._is_live = is_live
        self._items: list[Moment] = []
        self.live = 0  # whoever changes a job so that its moment no longer holds takes one off

    def add(self, moment: Moment) -> None:
        """Put in a moment that holds from now on."""
        heappush(self._items, moment)
        self.live += 1
        if len(self._items) > 2 * self.live + STALE_MAX:
            self._items = list({item for item in self._items if self._is_live(item)})
            heapify(self._items)

    def first(self) -> Moment | None:
        """Return the earliest moment that holds, or None."""
        while self._items:
            if self._is_live(self._items[0]):
                return self._items[0]
            heappop(self._items)
        return None

    def until(self, at: float, limit: int) -> list[Moment]:
        """Return up to `limit` moments that hold and are not later than `at`, earliest first."""
        found: list[Moment] = []
        while len(found) < limit and (moment := self.first()) is not None and moment[0] <= at:
            heappop(self._items)
            if not found or found[-1] != moment:
                found.append(moment)
        for moment in found:
            heappush(self._items, moment)
        return found

    def snapshot(self) -> list[Moment]:
        """Return every moment that holds, in order; for audits."""
        return sorted({item for item in self._items if self._is_live(item)})
