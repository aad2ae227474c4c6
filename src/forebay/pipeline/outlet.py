"""Outlet: what leaves a pipeline: each result to every sink, one thread at a time, none lost in silence."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from forebay.core.lanes import Ticket
from forebay.errors import InvalidError
from forebay.streams.ports import Result, Sink

_log = logging.getLogger("forebay.streams")


class Called:
    """A Sink out of a function of one Result."""

    def __init__(self, function: Callable[[Result], object]) -> None:
        self._function = function

    def write(self, result: Result) -> None:
        """Call it."""
        self._function(result)

    def counts(self) -> Mapping[str, int]:
        """Return nothing."""
        return {}

    def close(self) -> None:
        """Do nothing."""


def sink_of(given: Any) -> Sink:
    """Return what was given as a sink. Raises InvalidError."""
    if isinstance(given, Sink):
        return given
    if callable(given):
        return Called(given)
    raise InvalidError(f"a sink is a function of one Result, or one of forebay.sinks, not {given!r:.60}")


class Outlet:
    """The sinks of a pipeline."""

    def __init__(self, sinks: Sequence[Any]) -> None:
        self._sinks = [(sink_of(sink), threading.Lock()) for sink in sinks]
        self.errors = 0
        self._said = False
        self._lock = threading.Lock()

    def write(self, ticket: Ticket, value: Any, served_at: float) -> None:
        """Give a result to all sinks."""
        if not self._sinks:
            return
        result = Result(
            value,
            ticket.stream,
            ticket.seq,
            ticket.captured_at,
            served_at,
            ticket.degraded,
            ticket.fallback,
            ticket.facts,
        )
        for sink, lock in self._sinks:
            try:
                with lock:
                    sink.write(result)
            except Exception as error:
                self._failed(error)

    def close(self) -> None:
        """Close all sinks."""
        for sink, lock in self._sinks:
            try:
                with lock:
                    sink.close()
            except Exception as error:
                self._failed(error)

    def counts(self) -> Mapping[str, int]:
        """Return what the sinks counted, added up by name."""
        found: dict[str, int] = {}
        for sink, _ in self._sinks:
            for key, count in sink.counts().items():
                found[key] = found.get(key, 0) + count
        return found

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self.errors += 1
            said, self._said = self._said, True
        if not said:
            _log.warning(
                "a sink failed; the pipeline goes on and counts: %s: %s", type(error).__name__, error
            )
