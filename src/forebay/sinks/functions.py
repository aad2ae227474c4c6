"""Callback: a function of yours for each result."""

from collections.abc import Callable, Mapping
from typing import Any

from forebay.streams.ports import Result


class Callback:
    """What `callback` returns. An error of the function is the pipeline's to count: that result is lost."""

    def __init__(self, function: Callable[[Result], Any], end: Callable[[], Any] | None) -> None:
        self._function = function
        self._end = end
        self._written = 0
        self._failed = 0

    def write(self, result: Result) -> None:
        """Call it."""
        try:
            self._function(result)
        except BaseException:
            self._failed += 1
            raise
        self._written += 1

    def counts(self) -> Mapping[str, int]:
        """Return `written` and `failed`."""
        return {"written": self._written, "failed": self._failed}

    def close(self) -> None:
        """Call `end`."""
        if self._end is not None:
            self._end()


def callback(function: Callable[[Result], Any], *, end: Callable[[], Any] | None = None) -> Callback:
    """Return a sink that calls `function(result)`, and `end()` after the last one."""
    return Callback(function, end)
