"""Chance: seeded draws, the same on every machine and version of Python."""

import math
from collections.abc import Sequence
from typing import TypeVar

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15

T = TypeVar("T")


class Chance:
    """A stream of draws (splitmix64). `fork` gives an independent stream for one purpose."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = _mix(seed & _MASK)

    def fork(self, purpose: int) -> "Chance":
        """Return another stream that depends on this one's state and on `purpose`."""
        return Chance(_mix(self._state ^ _mix(purpose & _MASK)))

    def bits(self) -> int:
        """Return 64 drawn bits."""
        self._state = (self._state + _GAMMA) & _MASK
        return _mix(self._state)

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return (self.bits() >> 11) * (1.0 / (1 << 53))

    def between(self, low: float, high: float) -> float:
        """Return a number in [low, high)."""
        return low + (high - low) * self.random()

    def whole(self, low: int, high: int) -> int:
        """Return a whole number in [low, high]."""
        return low + self.bits() % (high - low + 1)

    def exponential(self, mean: float) -> float:
        """Return a wait with this mean, memoryless."""
        return -mean * math.log(1.0 - self.random())

    def normal(self) -> float:
        """Return a draw of the standard normal."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.random()))
        return radius * math.cos(2.0 * math.pi * self.random())

    def hit(self, share: float) -> bool:
        """Return True in this share of the draws."""
        return self.random() < share

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the choices."""
        return choices[self.bits() % len(choices)]


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
