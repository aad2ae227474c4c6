"""LazyHeap: an order whose members may leave from anywhere."""

import heapq
from typing import Final

_HEAP_SLACK: Final = 64  # stale entries a heap may hold beyond its live ones


class LazyHeap:
    """A heap of (key, seq) whose members can leave from the middle; stale entries go when they surface."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self.keys: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def push(self, key: float, seq: int) -> None:
        """Add a member, or move it to another key."""
        if self.keys.get(seq) != key:
            self.keys[seq] = key
            heapq.heappush(self._heap, (key, seq))

    def discard(self, seq: int) -> float | None:
        """Take a member out; returns its key, None when it was not there."""
        key = self.keys.pop(seq, None)
        if len(self._heap) > 2 * len(self.keys) + _HEAP_SLACK:
            self._heap = [(at, member) for member, at in self.keys.items()]
            heapq.heapify(self._heap)
        return key

    def top(self) -> tuple[float, int] | None:
        """Return the smallest (key, seq) without taking it; None when empty."""
        heap, keys = self._heap, self.keys
        while heap:
            if keys.get(heap[0][1]) == heap[0][0]:
                return heap[0]
            heapq.heappop(heap)
        return None

    def due(self, until: float, limit: int) -> list[int]:
        """Return at most `limit` members with key <= until, smallest first; takes none."""
        found: list[tuple[float, int]] = []
        while len(found) < limit:
            top = self.top()
            if top is None or top[0] > until:
                break
            heapq.heappop(self._heap)
            if not found or found[-1] != top:
                found.append(top)
        for entry in found:
            heapq.heappush(self._heap, entry)
        return [seq for _, seq in found]
