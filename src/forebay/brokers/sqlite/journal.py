"""Journal: how the memory of a failed transaction is taken back."""

from collections.abc import Callable
from typing import Any, Protocol


class Restorable(Protocol):
    """Something whose whole state can be kept cheaply."""

    def saved(self) -> Callable[[], None]:
        """Return the way back to the present state."""
        ...


class Journal:
    """What to undo in memory when the transaction around it fails."""

    def __init__(self) -> None:
        self._steps: list[tuple[Any, ...]] = []
        self._marks: dict[int, Callable[[], None]] = {}

    def undo_by(self, *step: Any) -> None:
        """Remember a call (function, arguments...) that takes back what was just done."""
        self._steps.append(step)

    def mark(self, thing: Restorable) -> None:
        """Remember the present state of a lane or of a task's counts, once a transaction."""
        if id(thing) not in self._marks:
            self._marks[id(thing)] = thing.saved()

    def forget(self) -> None:
        """The transaction is durable: nothing is to be undone."""
        self._steps.clear()
        self._marks.clear()

    def undo(self) -> None:
        """Put everything back as it was when the transaction began."""
        for step in reversed(self._steps):
            step[0](*step[1:])
        for restore in self._marks.values():
            restore()
        self.forget()
