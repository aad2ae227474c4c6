"""IdMint: job ids of uuid7 form: milliseconds, a counter, chance. In order inside a process, never twice."""

from collections.abc import Callable
from typing import Final

MS_MAX: Final = (1 << 48) - 1
_COUNT_MAX: Final = 1 << 12
_DRAWN: Final = 512  # ids whose chance is drawn at once


class IdMint:
    """Gives out ids. `chance` returns so many bytes that nobody can guess."""

    def __init__(self, chance: Callable[[int], bytes]) -> None:
        self._chance = chance
        self._ms = 0
        self._count = 0
        self._drawn = b""

    def new(self, now: float) -> str:
        """Return the next id; its milliseconds never run backwards, and run ahead of 4,096 ids in one."""
        ms = min(max(0, int(now * 1000)), MS_MAX)
        if ms > self._ms:
            self._ms, self._count = ms, 0
        elif self._count + 1 >= _COUNT_MAX:
            self._ms, self._count = self._ms + 1, 0
        else:
            self._count += 1
        if not self._drawn:
            self._drawn = self._chance(8 * _DRAWN)
        tail, self._drawn = self._drawn[:8].hex(), self._drawn[8:]
        head = "%012x" % self._ms
        variant = "89ab"[int(tail[0], 16) & 3]
        return f"{head[:8]}-{head[8:]}-7{self._count:03x}-{variant}{tail[1:4]}-{tail[4:]}"
