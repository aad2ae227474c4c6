"""Line: those who were told to come back, each behind the one before; who obeys comes when there is room."""

import math


class Line:
    """A virtual line: nobody stands in it, and all that is kept is when its last one has its turn."""

    __slots__ = ("ends_at",)

    def __init__(self) -> None:
        self.ends_at = -math.inf

    def join(self, *, step_s: float, soonest_s: float, most_s: float, now: float) -> float:
        """Take a place `step_s` behind the last one, not before `soonest_s` from now; return the seconds
        until its turn. The line gets no longer than `most_s`: then not all come back one by one.
        """
        turn_at = max(self.ends_at + step_s, now + soonest_s)
        self.ends_at = min(turn_at, now + most_s)
        return self.ends_at - now

    def wait_s(self, *, now: float) -> float:
        """Return the seconds until all have had their turn."""
        return max(0.0, self.ends_at - now)

    def close(self, *, now: float) -> None:
        """There is room for many: whoever was told to come has been here, or will not come."""
        self.ends_at = min(self.ends_at, now)
