"""Clock: the only way to the time, to sleep and to chance."""

from typing import Protocol


class Clock(Protocol):
    """Time and chance. One `now`: seconds since the epoch, never running backwards inside a process."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        ...

    def random(self) -> float:
        """Return a drawn number in [0, 1)."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        ...
