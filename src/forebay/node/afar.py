"""Afar: the node of a process that runs no handlers: those of others, as they tell of themselves."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from forebay.core.estimator import Estimator
from forebay.core.lifecycle import State
from forebay.node.janitor import Janitor
from forebay.node.neighbours import Heard, NodeTold
from forebay.node.node import STALLED_S
from forebay.ports.broker import Broker, Change
from forebay.ports.clock import Clock

SWEEP_S: Final = 1.0  # nodes sweep more often; this one is for the time when none is left
_OURS: Final = frozenset({State.SUCCEEDED, State.DEAD})
_NOT_SERVED: Final = frozenset({State.CANCELLED, State.EXPIRED})


class Afar:
    """Feeds the estimators of a door with what other nodes measured, and sweeps when nobody else does."""

    requests = None  # they run in the memory of a node, and here is none

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        *,
        estimators: dict[str, Estimator],
        on_failure: Callable[[str, BaseException], None] | None = None,
        on_foretold: Callable[[str, float], None] | None = None,
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._estimators = estimators
        self._on_foretold = on_foretold
        self._heard: dict[tuple[str, str], Heard] = {}
        self._told: Mapping[str, NodeTold] = {}
        self._unsubscribe: Callable[[], None] | None = None
        self.janitor = Janitor(broker, clock, on_failure=on_failure, on_expired=self._forget, every_s=SWEEP_S)

    def start(self) -> None:
        """Begin."""
        self._unsubscribe = self._broker.on_change(self._changed)
        self.janitor.start()

    async def drain(self, grace_s: float, *, hurry: asyncio.Event | None = None) -> bool:
        """Return True: nothing runs here."""
        return True

    async def close(self) -> None:
        """Stop. Twice is harmless."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        await self.janitor.close()

    def heard(self, others: Mapping[str, NodeTold]) -> None:
        """Take in what the nodes tell."""
        now = self._clock.now()
        self._told = others
        for name, estimator in self._estimators.items():
            ready = 0
            for node, told in others.items():
                of_task = told.tasks.get(name)
                if of_task is None:
                    continue
                ready += of_task.ready
                heard = self._heard.setdefault((node, name), Heard(of_task))
                heard.take(of_task, estimator, now=now)
            if ready != estimator.crew.count:
                estimator.crew.count = ready
                estimator.crew.changes += 1
        for key in [key for key in self._heard if key[0] not in others]:
            del self._heard[key]

    def workers(self) -> list[Mapping[str, object]]:
        """Return nothing: the replicas of others are shown by who knows them."""
        return []

    def breaker(self, task: str) -> Mapping[str, object] | None:
        """Return the breaker of a task that is least open among the nodes; None when none has one."""
        seen = [of.breaker for told in self._told.values() if (of := told.tasks.get(task)) and of.breaker]
        return min(seen, key=lambda one: float(one.get("retry_after_s") or 0.0), default=None)

    def level(self, task: str) -> int:
        """Return the cheapest variant that ordinary work of a task runs as on any node."""
        return max((of.level for told in self._told.values() if (of := told.tasks.get(task))), default=0)

    def unready_reason(self) -> str | None:
        """Return why nothing can be taken: the store does not answer. Jobs may wait for nodes to come."""
        if self._clock.now() - self.janitor.swept_at > STALLED_S:
            return f"no sweep of the store has worked for {STALLED_S:g} s"
        return None

    def _changed(self, changes: Sequence[Change]) -> None:
        """Score what was told of jobs that have ended."""
        for change in changes:
            estimator = self._estimators.get(change.task)
            if estimator is None or not estimator.scoring:
                continue
            if change.state in _OURS:
                for error_s in estimator.ended((change.job_id,), now=self._clock.now()):
                    if self._on_foretold is not None:
                        self._on_foretold(change.task, error_s)
            elif change.state in _NOT_SERVED:
                estimator.forget((change.job_id,))

    def _forget(self, job_ids: Sequence[str]) -> None:
        for estimator in self._estimators.values():
            if estimator.scoring:
                estimator.forget(job_ids)
