"""Tally: whole numbers counted in narrow classes, so that a quantile of millions costs a few kilobytes."""

from collections.abc import Iterable
from typing import Final

EXACT: Final = 128  # numbers below are counted as they are, larger ones in classes of 1/64


class Tally:
    """How often which number came. At most 64 classes for each doubling; never wrong by more than 1/64."""

    __slots__ = ("classes", "largest", "total")

    def __init__(self) -> None:
        self.classes: dict[int, int] = {}  # class -> how often
        self.largest = 0
        self.total = 0

    def add(self, number: int) -> None:
        """Count one number, 0 or more."""
        cls = class_of(number)
        self.classes[cls] = self.classes.get(cls, 0) + 1
        self.total += 1
        if number > self.largest:
            self.largest = number

    def quantile(self, share: float) -> int:
        """Return the smallest number that at least `share` of those counted do not exceed, rounded up inside
        its class; 0 when there are none."""
        seen = 0
        for cls in sorted(self.classes):
            seen += self.classes[cls]
            if seen >= share * self.total:
                return min(self.largest, most_of(cls))
        return 0


def together(tallies: Iterable[Tally]) -> Tally:
    """Return one tally of everything in several."""
    found = Tally()
    for tally in tallies:
        for cls, times in tally.classes.items():
            found.classes[cls] = found.classes.get(cls, 0) + times
        found.total += tally.total
        found.largest = max(found.largest, tally.largest)
    return found


def class_of(number: int) -> int:
    """Return the class of a number: itself below EXACT, then its binary exponent and six binary places."""
    if number < EXACT:
        return number
    shift = number.bit_length() - 7
    return (shift << 6) + (number >> shift)


def most_of(cls: int) -> int:
    """Return the largest number of a class."""
    if cls < EXACT:
        return cls
    shift = (cls >> 6) - 1
    return ((cls - (shift << 6) + 1) << shift) - 1
