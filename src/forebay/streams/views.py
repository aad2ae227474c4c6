"""Views: frames that readers dropped without a release, and slots whose frame was released while a view of it
still lives. What is still seen is never written over."""

import sys
import weakref
from collections import deque
from typing import Any, Final

from forebay.streams.ring import Ring


def _references(_: int, view: object) -> int:
    """Return what `Views.release` sees of a view that only the caller's variable has."""
    return sys.getrefcount(view)


def _alone() -> int:
    probe = object()
    return _references(0, probe)


ALONE: Final = _alone()
UNFILLED: Final = object()  # in the place of a view: what was never sent


class Views:
    """The views of one process. What ends at a bad moment, inside a move, is swept at the next move."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.due: deque[tuple[int, Any]] = deque()  # a dropped frame with its view; a slot whose view is gone
        self._living: dict[int, weakref.ref[Any]] = {}

    def release(self, slot: int, view: Any) -> None:
        """The frame is served. The caller has no reference to the view but the variable that it passes."""
        if sys.getrefcount(view) <= ALONE:
            self.ring.settle(slot)
        elif self.ring.owns(slot):
            self.ring.keep(slot)
            self._living[slot] = weakref.ref(view, lambda _: self._gone(slot))

    def dropped(self, slot: int, view: Any) -> None:
        """The frame was dropped without a release, perhaps by a collection inside a move."""
        self.due.append((slot, view))

    def unfilled(self, slot: int) -> None:
        """A place to fill was dropped unsent, perhaps by a collection inside a move."""
        self.due.append((slot, UNFILLED))
        self.sweep_if_idle()

    def _gone(self, slot: int) -> None:
        self.due.append((slot, None))
        self.sweep_if_idle()

    def sweep_if_idle(self) -> None:
        """Sweep, unless a move is under way."""
        if self.ring.idle():
            self.sweep()

    def sweep(self) -> None:
        """Free what nobody sees any more."""
        while self.due:
            slot, view = self.due.popleft()
            if view is UNFILLED:
                self.ring.give_back(slot)
            elif view is not None:
                self.release(slot, view)
            elif self._living.pop(slot, None) is not None:
                self.ring.let_go(slot)

    def after_fork(self) -> None:
        """In a forked child: they are the parent's."""
        self.due.clear()
        self._living.clear()
