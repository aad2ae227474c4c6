"""Engine: virtual time. A heap of (at, tie, seq, action); equal instants are played in a drawn order."""

import heapq
from collections.abc import Callable
from typing import Any

from forebay.sim.chance import Chance

EVENTS_MAX = 20_000_000  # a world that never comes to rest is a fault, not a long run


class RunawayError(Exception):
    """More events than EVENTS_MAX were played: something schedules itself for ever."""


class Engine:
    """Plays actions in the order of their instants. Nothing else moves the time."""

    def __init__(self, chance: Chance, *, start: float = 1_000.0) -> None:
        self.now = start
        self.played = 0
        self._ties = chance
        self._heap: list[tuple[float, int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._seq = 0

    def at(self, when: float, action: Callable[..., object], *args: Any) -> None:
        """Play `action(*args)` at `when`; a time that is past means now."""
        self._seq += 1
        when = max(when, self.now)
        heapq.heappush(self._heap, (when, self._ties.bits(), self._seq, action, args))

    def after(self, wait_s: float, action: Callable[..., object], *args: Any) -> None:
        """Play `action(*args)` after `wait_s`."""
        self.at(self.now + wait_s, action, *args)

    def step(self) -> bool:
        """Play the next action; return False when there is none."""
        if not self._heap:
            return False
        when, _, _, action, args = heapq.heappop(self._heap)
        self.now = when
        self.played += 1
        if self.played > EVENTS_MAX:
            raise RunawayError(f"{self.played} events, time {self.now:.3f}")
        action(*args)
        return True

    def run(self, *, until: float, stop: Callable[[], bool] | None = None) -> None:
        """Play everything before `until`, or until `stop()` after some action."""
        while self._heap and self._heap[0][0] <= until:
            self.step()
            if stop is not None and stop():
                return
