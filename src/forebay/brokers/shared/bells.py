"""Bells: who here wants to hear of work and of changes. What one of them raises stops nobody."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any

from forebay.brokers.shared.news import News
from forebay.ports.broker import Doorbell, Listener
from forebay.ports.hinted import Hearer, Source


class Bells:
    """Doorbells and listeners of this process."""

    def __init__(self) -> None:
        self._doorbells: dict[object, Doorbell] = {}
        self._cancel_bells: dict[object, Doorbell] = {}
        self._listeners: dict[object, Listener] = {}
        self._owed_bells: dict[object, Callable[[], None]] = {}
        self._hearers: dict[object, Hearer] = {}

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

    def on_told(self, hearer: Hearer) -> Callable[[], None]:
        """Register who hears of work and changes, and whose they are; returns the way to remove it."""
        return _hung(self._hearers, hearer)

    def tell(self, news: News, source: Source = Source.OWN) -> None:
        """Ring for everything there is to tell, but for work that was looked for already."""
        work = news.work - news.looked
        if work or news.changes:
            for hearer in list(self._hearers.values()):
                _call(hearer, source, work, news.changes)
        self.ring(work)
        for doorbell in list(self._cancel_bells.values()):
            for task in news.cancels:
                _call(doorbell, task)
        if news.changes:
            for listener in list(self._listeners.values()):
                _call(listener, news.changes)
        if news.owed:
            for bell in list(self._owed_bells.values()):
                _call(bell)

    def coming(self, tasks: Collection[str]) -> None:
        """Ring for work that is on its way to the disk: what is leased now joins its transaction."""
        for hearer in list(self._hearers.values()):
            _call(hearer, Source.OWN, tasks, ())
        self.ring(tasks)

    def ring(self, tasks: Iterable[str]) -> None:
        """Ring every doorbell for each task."""
        for doorbell in list(self._doorbells.values()):
            for task in tasks:
                _call(doorbell, task)

    def clear(self) -> None:
        """Forget everybody."""
        for held in (self._doorbells, self._cancel_bells, self._listeners, self._owed_bells, self._hearers):
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
