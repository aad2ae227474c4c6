"""Bells: who wants to hear of work and of changes."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from forebay.ports.broker import Change, Doorbell, Listener


class Bells:
    """Doorbells and listeners. What one of them raises reaches the loop's exception handler, nobody else."""

    def __init__(self) -> None:
        self._doorbells: dict[object, Doorbell] = {}
        self._cancel_bells: dict[object, Doorbell] = {}
        self._listeners: dict[object, Listener] = {}
        self._owed_bells: dict[object, Callable[[], None]] = {}

    @property
    def has_doorbells(self) -> bool:
        """Whether anybody hears a ring."""
        return bool(self._doorbells)

    @property
    def has_listeners(self) -> bool:
        """Whether anybody hears of changes."""
        return bool(self._listeners)

    def on_work(self, doorbell: Doorbell) -> Callable[[], None]:
        """Register a doorbell; returns the way to remove it."""
        token = object()
        self._doorbells[token] = doorbell
        return lambda: _drop(self._doorbells, token)

    def on_cancel(self, doorbell: Doorbell) -> Callable[[], None]:
        """Register a bell for cancels of running jobs; returns the way to remove it."""
        token = object()
        self._cancel_bells[token] = doorbell
        return lambda: _drop(self._cancel_bells, token)

    def on_owed(self, bell: Callable[[], None]) -> Callable[[], None]:
        """Register a bell for deliveries that are owed; returns the way to remove it."""
        token = object()
        self._owed_bells[token] = bell
        return lambda: _drop(self._owed_bells, token)

    def ring_owed(self) -> None:
        """Ring because something new is owed."""
        for bell in list(self._owed_bells.values()):
            _call(_hung(bell), None)

    def ring_cancels(self, tasks: Iterable[str]) -> None:
        """Ring for each task of which a running job was asked to end."""
        for doorbell in list(self._cancel_bells.values()):
            for task in tasks:
                _call(doorbell, task)

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Register a listener; returns the way to remove it."""
        token = object()
        self._listeners[token] = listener
        return lambda: _drop(self._listeners, token)

    def ring(self, tasks: Iterable[str]) -> None:
        """Ring every doorbell for each task."""
        for doorbell in tuple(self._doorbells.values()):
            for task in tasks:
                _call(doorbell, task)

    def hear(self, changes: Sequence[Change]) -> None:
        """Tell every listener."""
        if changes:
            for listener in list(self._listeners.values()):
                _call(listener, changes)

    def clear(self) -> None:
        """Forget everybody."""
        self._doorbells.clear()
        self._cancel_bells.clear()
        self._listeners.clear()
        self._owed_bells.clear()


def _drop(held: dict[object, Any], token: object) -> None:
    held.pop(token, None)


def _hung(bell: Callable[[], None]) -> Callable[[Any], None]:
    return lambda _: bell()


def _call(listener: Callable[[Any], None], news: Any) -> None:
    try:
        listener(news)
    except Exception as error:  # a listener's fault must not stop the store
        told = {"message": "a listener of the store failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(told)
