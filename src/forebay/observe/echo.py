"""Echo: what worker processes print, into the log of the server, bounded in lines a second."""

from collections.abc import Callable
from typing import Any

LINES_PER_S_MAX = 100  # of all children together; what is beyond is counted and said


class Echo:
    """One log line for each printed line, until a second has had enough of them."""

    def __init__(self, log: Any, *, now: Callable[[], float]) -> None:
        self._log = log
        self._now = now
        self._second = 0
        self._lines = 0
        self._dropped = 0

    def line(self, worker: str, text: str) -> None:
        """Log one line of a worker."""
        second = int(self._now())
        if second != self._second:
            if self._dropped:
                self._log.warning("worker_output_cut", lines=self._dropped, per_s_max=LINES_PER_S_MAX)
            self._second, self._lines, self._dropped = second, 0, 0
        if self._lines >= LINES_PER_S_MAX:
            self._dropped += 1
            return
        self._lines += 1
        self._log.info("worker_output", worker=worker, line=text)
