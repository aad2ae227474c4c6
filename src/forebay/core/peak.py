"""Peak: the largest of many samples: since it was taken last, and over the last minute."""

from typing import Final

SECONDS: Final = 60


class Peak:
    """The peaks of one gauge. A sample costs a comparison or two; memory is 60 numbers."""

    __slots__ = ("_second", "_seconds", "_since", "latest")

    def __init__(self) -> None:
        self.latest: int | None = None  # None before the first sample
        self._since = 0
        self._second = 0
        self._seconds = [0] * SECONDS  # the largest of each second, by number

    def see(self, value: int, *, now: float) -> None:
        """Take in one sample."""
        self._turn(int(now))
        self.latest = value
        self._since = max(self._since, value)
        at = self._second % SECONDS
        self._seconds[at] = max(self._seconds[at], value)

    def take(self) -> int | None:
        """Return the largest sample since this was called last, None when there never was one. The latest
        sample counts for both."""
        if self.latest is None:
            return None
        taken, self._since = self._since, self.latest
        return taken

    def last_minute(self, *, now: float) -> int:
        """Return the largest sample of the last 60 seconds, 0 when there was none."""
        self._turn(int(now))
        return max(self._seconds)

    def _turn(self, second: int) -> None:
        for passed in range(max(self._second + 1, second - SECONDS + 1), second + 1):
            self._seconds[passed % SECONDS] = 0
        self._second = max(self._second, second)
