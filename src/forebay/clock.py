"""SystemClock: the only file that reads the machine's clock and draws chance."""

import asyncio
import random
import time


class SystemClock:
    """Wall time anchored once and carried on by the monotonic clock: comparable between hosts, never
    running backwards inside a process, deaf to a clock that is set while we run.

    With the `anchor` of another process of this machine, both tell exactly the same time.
    """

    def __init__(self, anchor: float | None = None) -> None:
        self._anchor = time.time() - time.monotonic() if anchor is None else anchor

    @property
    def anchor(self) -> float:
        """When the monotonic clock was zero, in seconds since the epoch."""
        return self._anchor

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self._anchor + time.monotonic()

    def random(self) -> float:
        """Return a drawn number in [0, 1)."""
        return random.random()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        await asyncio.sleep(seconds)
