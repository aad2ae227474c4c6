"""Hearing: what other nodes measure, and their replicas, taken into the estimates of this process."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from forebay.core.estimator import Estimator
from forebay.core.lifecycle import State
from forebay.node.neighbours import Heard, NodeTold
from forebay.ports.broker import Broker, Change
from forebay.ports.clock import Clock

_OURS: Final = frozenset({State.SUCCEEDED, State.DEAD})
_NOT_SERVED: Final = frozenset({State.CANCELLED, State.EXPIRED})


class Hearing:
    """Feeds estimators with the words of others, and scores what was told of jobs that end there."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        *,
        estimators: Mapping[str, Estimator],
        on_foretold: Callable[[str, float], None] | None = None,
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._estimators = estimators
        self._on_foretold = on_foretold
        self._heard: dict[tuple[str, str], Heard] = {}
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin."""
        self._unsubscribe = self._broker.on_change(self._changed)

    def close(self) -> None:
        """Stop. Twice is harmless."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def take(self, others: Mapping[str, NodeTold]) -> None:
        """Take in what the other nodes tell."""
        now = self._clock.now()
        for name, estimator in self._estimators.items():
            ready = 0
            for node, told in others.items():
                of_task = told.tasks.get(name)
                if of_task is None:
                    continue
                ready += of_task.ready
                self._heard.setdefault((node, name), Heard(of_task)).take(of_task, estimator, now=now)
            estimator.crew.heard(name, ready)
        for key in [key for key in self._heard if key[0] not in others]:
            del self._heard[key]

    def forget(self, job_ids: Sequence[str]) -> None:
        """These expired: no estimate of service could have hit that."""
        for estimator in self._estimators.values():
            if estimator.scoring:
                estimator.forget(job_ids)

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
