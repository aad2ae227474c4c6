"""Bells: who here wants to hear of work and of changes. What one of them raises stops nobody."""

import asyncio
from collections.abc import Callable
from typing import Any

from forebay.brokers.shared.news import News
from forebay.ports.broker import Doorbell, Listener


class Bells:
    """Doorbells and listeners of this process."""

    def __init__(self) -> None:
        self._doorbells: dict[object, Doorbell] = {}
        self._cancel_bells: dict[object, Doorbell] = {}
        self._listeners: dict[object, Listener] = {}
        self._owed_bells: dict[object, Callable[[], None]] = {}

    def on_work(self, doorbell: Doorbell) -> Callable[[], None]:
        """Register a doorbell; returns the way to remove it."""
        return _hung(self._doorbells, doorbell)

    def on_cancel(self, doorbell: Doorbell) -> Callable[[], None]:
        """Register a bell for cancels of running jobs; returns the way to remove it."""
        return _hung(self._cancel_bells, doorbell)

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Register a listener; returns the way to remove it."""
        return _hung(self._listeners, listener)

    def on_owed(self, bell: Callable[[], None]) -> Callable[[], None]:
        """Register a bell for deliveries that are owed; returns the way to remove it."""
        return _hung(self._owed_bells, bell)

    def tell(self, news: News) -> None:
        """Ring for everything there is to tell."""
        for doorbell in list(self._doorbells.values()):
            for task in news.work:
                _call(doorbell, task)
        for doorbell in list(self._cancel_bells.values()):
            for task in news.cancels:
                _call(doorbell, task)
        if news.changes:
            for listener in list(self._listeners.values()):
                _call(listener, news.changes)
        if news.owed:
            for bell in list(self._owed_bells.values()):
                _call(bell)

    def clear(self) -> None:
        """Forget everybody."""
        for held in (self._doorbells, self._cancel_bells, self._listeners, self._owed_bells):
            held.clear()


def _hung(held: dict[object, Any], bell: Any) -> Callable[[], None]:
    token = object()
    held[token] = bell
    return lambda: held.pop(token, None) and None


def _call(bell: Callable[..., object], *news: Any) -> None:
    try:
        bell(*news)
    except Exception as error:  # a listener's fault must not stop the store
        told = {"message": "a listener of the store failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(told)
