"""Telling: what a turn of a lane leaves to be told: runs, changes of breakers, steps between variants.

It also shows the ladders of the lane how full their queues are, before the turn.
"""

from collections.abc import Callable, Mapping

from forebay.core.breaker import Change
from forebay.core.dispatcher import Dispatcher
from forebay.core.estimator import Estimator
from forebay.core.job import PRIORITY_NORMAL
from forebay.core.levels import fill_of
from forebay.node.facts import LaneFacts
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock

Bounds = tuple[int, int]  # of a queue, in jobs and in bytes


class Telling:
    """Carries facts between a lane's Dispatcher and those who measure."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        broker: Broker,
        clock: Clock,
        facts: LaneFacts,
        *,
        estimators: Mapping[str, Estimator],  # of the lane's own tasks: of guests it says nothing about them
        bounds: Mapping[str, Bounds],
        on_breaker: Callable[[str, Change], None],
    ) -> None:
        self._dispatcher = dispatcher
        hand = self._hand = dispatcher.hand
        self._broker = broker
        self._clock = clock
        self._facts = facts
        self._estimators = estimators
        self._on_breaker = on_breaker
        self._bounds = [(task, bounds[task.spec.name]) for task in hand.laddered if task.spec.name in bounds]

    def look(self) -> None:
        """Show each ladder how full the queue of its task is."""
        for task, (jobs_max, bytes_max) in self._bounds:
            load = self._broker.load_now(task.spec.name, now=self._clock.now())
            if load is not None:
                task.filled = fill_of(
                    queued=load.queued,
                    open_jobs=load.open,
                    bytes_open=load.bytes,
                    jobs_max=jobs_max,
                    bytes_max=bytes_max,
                )

    def tell(self) -> None:
        """Tell all that happened in a turn."""
        for ran in self._dispatcher.take_ran():
            estimator = self._estimators.get(ran.task)
            if estimator is not None:
                estimator.ran(items=ran.items, took_s=ran.took_s, size_b=ran.size_b, level=ran.level)
        for guard, entry in self._hand.guarded:
            while guard.changes:
                self._on_breaker(entry.spec.name, guard.changes.popleft())
        while self._hand.moved:
            name, moved = self._hand.moved.popleft()
            level = self._hand.tasks[name].level_of(PRIORITY_NORMAL)
            estimator = self._estimators.get(name)
            if estimator is not None:
                estimator.service = estimator.services.move(level)
            self._facts.moved(name, level, moved)
