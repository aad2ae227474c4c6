"""Stage: what clients, nodes and children need of the world they are in."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from forebay.sim.chance import Chance
from forebay.sim.checker import Checker
from forebay.sim.engine import Engine
from forebay.sim.faults import FaultKind, Windows
from forebay.sim.forecasts import Forecasts
from forebay.sim.plan import Plan, PlannedJob
from forebay.sim.service import Service
from forebay.sim.watched import WatchedBook

Act = Callable[..., object]


class Stage(Protocol):
    """The world as its actors see it."""

    plan: Plan
    chance: Chance
    engine: Engine
    checker: Checker
    windows: Windows
    services: dict[str, Service]
    levels: dict[str, tuple[Service, ...]]
    store: WatchedBook
    scripts: dict[str, PlannedJob]  # by job id
    forecasts: Forecasts | None

    def note(self, *what: Any) -> None:
        """Write a line of history."""
        ...

    def struck(self, kind: FaultKind) -> bool:
        """Say whether a lasting fault of this kind strikes now."""
        ...

    def must_write(self) -> None:
        """Raise StoreFullError while nothing can be written."""
        ...

    def latency(self) -> float:
        """Return how long an answer of the store takes."""
        ...

    def tell(self, job_ids: Sequence[str]) -> None:
        """Ring the doorbells for what became ready."""
        ...

    def look_for_cancels(self) -> None:
        """Tell every node that a running job is to be cancelled."""
        ...
