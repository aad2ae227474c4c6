"""Pace: gives a source the rate of a camera."""

import threading
from typing import Final

from forebay.clock import SystemClock

BEHIND_MAX_S: Final = 1.0


class Pace:
    """One turn every 1/fps seconds, counted from the first, so that no error adds up.

    Who is late by more than `BEHIND_MAX_S` does not catch up by a burst: the count begins anew there.
    """

    def __init__(self, fps: float | None, clock: SystemClock, closed: threading.Event) -> None:
        self._period_s = None if fps is None else 1.0 / fps
        self._clock = clock
        self._closed = closed
        self._first_at = 0.0
        self._turns = 0
        self.slips = 0

    def wait(self) -> bool:
        """Wait for the next turn; return False when the source was closed meanwhile."""
        if self._period_s is None:
            return not self._closed.is_set()
        now = self._clock.now()
        due = self._first_at + self._turns * self._period_s
        if not self._turns or now - due > BEHIND_MAX_S:
            self.slips += self._turns > 0
            self._first_at, self._turns, due = now, 0, now
        self._turns += 1
        return not (self._closed.wait(due - now) if due > now else self._closed.is_set())
