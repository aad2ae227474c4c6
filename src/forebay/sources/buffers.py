"""Buffers: memory for frames that is used again once nobody sees the frame in it any more."""

import sys
from typing import Any, Final

KEPT_MAX: Final = 8


def _references(held: list[Any]) -> int:
    return sys.getrefcount(held[0])


_ALONE: Final = _references([object()])


class Buffers:
    """Gives an array for each frame. Touching fresh memory costs ten times a warm copy, so one that came
    back is given again; one that is still seen, by a view too, never is. Keeps `KEPT_MAX` at most."""

    def __init__(self, numpy: Any, shape: tuple[int, ...], dtype: str = "uint8") -> None:
        self._numpy = numpy
        self._shape = shape
        self._dtype = dtype
        self._kept: list[Any] = []

    def take(self) -> Any:
        """Return an array that nobody else has; what is in it is anything."""
        kept = self._kept
        for number in range(len(kept)):
            if _references(kept[number : number + 1]) <= _ALONE + 1:
                kept.append(kept.pop(number))
                return kept[-1]
        array = self._numpy.empty(self._shape, self._dtype)
        if len(kept) >= KEPT_MAX:
            del kept[0]
        kept.append(array)
        return array
