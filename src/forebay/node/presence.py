"""Presence: what a node tells of itself, and for how long it has had nothing to do."""

import socket
from collections.abc import Mapping, Sequence
from typing import Protocol

from forebay.core.estimator import Estimator
from forebay.node.neighbours import WORKERS_TOLD_MAX, NodeTold, Recorded, TaskTold
from forebay.ports.clock import Clock


class NodeOwn(Protocol):
    """What is asked of the node of this process."""

    def workers(self) -> Sequence[Mapping[str, object]]:
        """Return one record per replica."""
        ...

    def ready(self, task: str) -> int:
        """Return how many replicas serve a task now."""
        ...

    def level(self, task: str) -> int:
        """Return which variant of a task runs ordinary work now."""
        ...

    def breaker(self, task: str) -> Mapping[str, object] | None:
        """Return where the breaker of a task stands."""
        ...

    def unready_reason(self) -> str | None:
        """Return why some task gets no work done."""
        ...


class Life(Protocol):
    """Whether the process of the node goes on."""

    draining: bool


class Presence:
    """What is told of one node. Idle is since it was last seen, or known, to run anything; ask it often."""

    def __init__(
        self,
        node: NodeOwn,
        estimators: Mapping[str, Estimator],
        clock: Clock,
        life: Life,
    ) -> None:
        self._node = node
        self._estimators = estimators
        self._clock = clock
        self._life = life
        self._host = socket.gethostname()
        self._started_at = self._busy_at = clock.now()
        self._ran = 0

    def told(self) -> NodeTold:
        """Return what to tell now."""
        now = self._clock.now()
        tasks = {name: self._task(name, estimator) for name, estimator in self._estimators.items()}
        workers = [dict(worker) for worker in self._node.workers()]
        # What began and ended between two looks is known by its number.
        ran = sum(told.runs[-1].number for told in tasks.values() if told.runs)
        if ran != self._ran or any(worker["batch"] for worker in workers):
            self._ran, self._busy_at = ran, now
        return NodeTold(
            workers[:WORKERS_TOLD_MAX],
            tasks,
            self._node.unready_reason(),
            host=self._host,
            started_at=self._started_at,
            idle_s=now - self._busy_at,
            draining=self._life.draining,
        )

    def _task(self, name: str, estimator: Estimator) -> TaskTold:
        seen = self._node.breaker(name)
        told = TaskTold(
            self._node.ready(name), self._node.level(name), breaker=None if seen is None else dict(seen)
        )
        if isinstance(estimator, Recorded):
            told.final, told.again, told.runs = estimator.final, estimator.again, list(estimator.runs)
        return told
