"""Spares: which free slot is filled next, so that few go round: those are warm in the writer's cache."""

import os
from typing import Final

from forebay.streams.channel import ENTRY_BYTES, Pipe

BATCH: Final = 8  # freed slots that a writer looks at for the last one
KEEP: Final = 2  # freed slots that stay for the next frames, though the last ones did without them
WINDOW: Final = 128  # slots taken between two looks at how it goes
MISSES_MAX: Final = 4  # so often in a window no freed slot may be there, and readers still keep up
WARM_MAX_B: Final = 1 << 20  # a larger frame does not stay in a core's own cache, whichever slot it has
WINDOWS_MAX: Final = 64  # without another try, after readers that did not


class Spares:
    """The free slots as one process sees them: those freed of late (`hot`), and those at rest (`cold`).

    A pipe gives first what was put in first. While readers keep up, only the slot that was freed last is
    used, and the others are laid to rest at once. Where frames are large, or find none freed too often, those
    freed take turns instead, and what was not needed at two looks is laid to rest.
    A slot at rest is taken when no other is free. It comes back among those freed only through a reader's
    hands: so it passes from `hot` to `cold` once at most before its row changes, as `slots.strays` has it.
    """

    __slots__ = ("_again_in", "_batch_b", "_cold", "_fails", "_hot_fd", "_misses", "_spare", "_takes", "hot")

    def __init__(self, hot: Pipe, cold: Pipe, item_bytes: int) -> None:
        self.hot = hot
        self._cold = cold
        self._hot_fd = hot.fd
        self._batch_b = ENTRY_BYTES if item_bytes > WARM_MAX_B else BATCH * ENTRY_BYTES
        self._takes = self._misses = self._spare = 0
        self._fails = self._again_in = 0  # windows in which readers did not keep up; until the next try

    def take(self) -> bytes:
        """Take out the entry of a free slot; empty when there is none. In a critical section of a ring."""
        self._takes += 1
        if self._takes >= WINDOW:
            self._look()
        try:
            entry = os.read(self._hot_fd, self._batch_b)
        except BlockingIOError:
            self._misses += 1
            if self._misses > MISSES_MAX and self._batch_b > ENTRY_BYTES:
                self._look()  # at once: each miss warms another slot
            return self._cold.read()
        if len(entry) > ENTRY_BYTES:
            self._cold.write(entry[:-ENTRY_BYTES])
            return entry[-ENTRY_BYTES:]
        return entry

    def _look(self) -> None:
        """Say how the next window goes by how this one went."""
        misses, self._takes, self._misses = self._misses, 0, 0
        before, self._spare = self._spare, self.hot.depth()
        if self._batch_b > ENTRY_BYTES:
            if misses <= MISSES_MAX:
                self._fails = 0
            else:
                self._again_in = min(1 << self._fails, WINDOWS_MAX)
                self._fails += self._again_in < WINDOWS_MAX
                self._batch_b = ENTRY_BYTES
            return
        surplus = min(before, self._spare) - KEEP
        if surplus > 0:
            self._spare -= self.hot.pour(self._cold, surplus)
        self._again_in -= 1
        if not self._again_in:
            self._batch_b = BATCH * ENTRY_BYTES
