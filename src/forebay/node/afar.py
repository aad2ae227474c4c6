"""Afar: the node of a process that runs no handlers: those of others, as they tell of themselves."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from forebay.core.estimator import Estimator
from forebay.node.hearing import Hearing
from forebay.node.janitor import Janitor
from forebay.node.neighbours import NodeTold
from forebay.node.node import STALLED_S
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock
from forebay.ports.spool import UNSWEPT

SWEEP_S: Final = 1.0  # nodes sweep more often; this one is for the time when none is left


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
        self._clock = clock
        self._told: Mapping[str, NodeTold] = {}
        self._hearing = Hearing(broker, clock, estimators=estimators, on_foretold=on_foretold)
        self.janitor = Janitor(
            broker, clock, on_failure=on_failure, on_expired=self._hearing.forget, every_s=SWEEP_S
        )

    def start(self) -> None:
        """Begin."""
        self._hearing.start()
        self.janitor.start()

    async def drain(self, grace_s: float, *, hurry: asyncio.Event | None = None) -> bool:
        """Return True: nothing runs here."""
        return True

    async def close(self) -> None:
        """Stop. Twice is harmless."""
        self._hearing.close()
        await self.janitor.close()

    def heard(self, others: Mapping[str, NodeTold]) -> None:
        """Take in what the nodes tell."""
        self._told = others
        self._hearing.take(others)

    def workers(self) -> list[Mapping[str, object]]:
        """Return nothing: the replicas of others are shown by who knows them."""
        return []

    def breakers_inside(self) -> list[Mapping[str, object]]:
        """Return nothing, for the same reason."""
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
            return f"{UNSWEPT} for {STALLED_S:g} s"
        return None
