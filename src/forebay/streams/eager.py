"""Eager: a reader that finds nothing looks for a moment before it sleeps, where that has paid off lately."""

import os
from typing import Final

from forebay.streams.slab import BELL, Slab

# About 0.1 ms. A sleep and its end cost the two sides 0.07 ms of processor together where an idle core halts,
# half of it in the writer: so a look in vain does not cost much more than one that pays off saves.
LOOKS_MAX: Final = 3000
MISSES_MAX: Final = 8  # after so many in vain, one wait in 2**8 begins with a look


class Eager:
    """How one process looks. Threads may share it: it only guesses, whoever sleeps is woken by the kernel."""

    def __init__(self, slab: Slab) -> None:
        self._words = slab.words
        self._misses = 0  # in a row
        self._skip = 0  # waits that begin without a look
        self._alone = len(os.sched_getaffinity(0)) < 2  # nobody could write while we look

    def hears(self, seen: int) -> bool:
        """Return whether the bell changed from what was `seen` while we looked, LOOKS_MAX times at most.

        In vain until `paid` says otherwise: another reader may have been faster.
        """
        if self._skip or self._alone:
            self._skip -= self._skip > 0
            return False
        self._skip = (1 << self._misses) - 1
        self._misses = min(self._misses + 1, MISSES_MAX)
        words = self._words
        return any(words[BELL] != seen for _ in range(LOOKS_MAX))

    def paid(self) -> None:
        """The look brought a frame: the next wait begins with one."""
        self._misses = self._skip = 0
