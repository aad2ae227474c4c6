"""Front: everything the door needs to know, handed in by the composition root."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from forebay.blobs.keeper import Keeper
from forebay.config import Settings
from forebay.core.admission import Gate
from forebay.core.alerting import Firing
from forebay.core.arrivals import ArrivalWindows
from forebay.core.budget import Budgets
from forebay.core.callback import CallbackRules
from forebay.core.crons import CronEntry, CronMark
from forebay.core.estimator import Estimator
from forebay.core.peak import Peak
from forebay.core.task import TaskSpec
from forebay.errors import ForebayError
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock
from forebay.ports.requests import Requests
from forebay.server.access import Watchman
from forebay.server.links import Links
from forebay.server.live import Hub

STORE_PROBLEM_SHOWN_S = 10.0  # a write that failed keeps readiness false this long, unless one succeeds


class NodeView(Protocol):
    """What the door may ask the node that runs in the same process."""

    def workers(self) -> Sequence[Mapping[str, object]]:
        """Return one JSON-able record per replica: `worker`, `task`, `device`, `state`, `pid`, `batch`,
        `memory_bytes`, `restarts`, `last_crash`, `breakers`, `started_at` (seconds since the epoch or None).
        """
        ...

    def breakers_inside(self) -> Sequence[Mapping[str, object]]:
        """Return the named breakers inside the handlers of each replica: `worker`, `task` and `breakers`, as
        those of `workers`."""
        ...

    def breaker(self, task: str) -> Mapping[str, object] | None:
        """Return where the breaker of a task stands: `breaker`, `state`, `trips`, `retry_after_s`, `reason`;
        None when it has none."""
        ...

    def level(self, task: str) -> int:
        """Return which variant of a task runs ordinary work now, 0 is the task itself."""
        ...

    def unready_reason(self) -> str | None:
        """Return why no work gets done (one short sentence), None when replicas serve."""
        ...


class NeighboursView(Protocol):
    """What the door may ask about the nodes of other processes on the same engine."""

    def workers(self) -> Sequence[Mapping[str, object]]:
        """Return one record per replica of theirs, like those of NodeView."""
        ...

    def nodes(self) -> Sequence[Mapping[str, object]]:
        """Return one record per node, this process's among them: `node`, `host`, `state`, `replicas`,
        `ready`, `in_hand`, `idle_s`, `deletion_cost`, `unready`, `started_at`."""
        ...


class StreamBoard(Protocol):
    """What the door may ask about pipelines of frames, which run in processes of their own."""

    def streams(self) -> Sequence[Mapping[str, object]]:
        """Return one JSON-able record per stream of every running pipeline: see StreamView."""
        ...

    def stages(self) -> Sequence[Mapping[str, object]]:
        """Return one JSON-able record per stage."""
        ...


class FrameTaker(Protocol):
    """What the door may ask of the pipelines that the server runs."""

    def bytes_max(self, stream: str) -> int | None:
        """Return how large a frame of a stream may be, None where no pipeline takes it."""
        ...

    async def push(self, stream: str, header: bytes, pixels: bytes, kind: str | None) -> Mapping[str, Any]:
        """Hand a frame on and return what became of it. Raises a ForebayError for what is refused."""
        ...


class SenderView(Protocol):
    """What the door may ask the sender of webhooks in the same process."""

    def unready_reason(self) -> str | None:
        """Return why nobody is told of ends (one short sentence), None when all is well."""
        ...


class CronsView(Protocol):
    """What the door may ask about the cron entries of the application."""

    @property
    def entries(self) -> Mapping[str, CronEntry]:
        """The entries by name, in the order of declaration."""
        ...

    def next_begin(self, entry: CronEntry, mark: CronMark | None, *, now: float) -> float | None:
        """Return when the next run of an entry begins, None while it is paused or never."""
        ...

    def waits_for(self, entry: CronEntry, mark: CronMark | None) -> str | None:
        """Return why the newest due instant still waits for its job, None when none waits."""
        ...


class AlarmsView(Protocol):
    """What the door may ask about alerts."""

    def firing(self) -> Sequence[Firing]:
        """Return what fires now, the most urgent first."""
        ...


class TaskMeter(Protocol):
    """The counters of one task that the door feeds."""

    def arrived(self, count: int) -> None:
        """Count submissions, whatever becomes of them."""
        ...

    def admitted(self, count: int) -> None:
        """Count submissions that became jobs."""
        ...

    def replayed(self, count: int) -> None:
        """Count submissions whose key already had its job."""
        ...

    def joined(self, count: int) -> None:
        """Count submissions that were answered with an equal job."""
        ...

    def refused(self, reason: str, count: int) -> None:
        """Count refused submissions by a word of the closed list of reasons."""
        ...


class Meters(Protocol):
    """All meters of this process."""

    def for_task(self, task: str) -> TaskMeter:
        """Return the meter of a served task."""
        ...

    def budgeted(self, decision: str, count: int) -> None:
        """Count submissions that a budget granted or refused."""
        ...

    def bound_reached(self, bound: str) -> None:
        """Count that a named bound was reached."""
        ...

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the exposition text and its media type."""
        ...


class Log(Protocol):
    """Where the door says what happened: one event is one line."""

    def info(self, event: str, **fields: object) -> object:
        """Say something that is as it should be."""
        ...

    def warning(self, event: str, **fields: object) -> object:
        """Say something that somebody should look at."""
        ...

    def exception(self, event: str, **fields: object) -> object:
        """Say that something broke, with the exception being handled."""
        ...


class Lifecycle:
    """Whether this process takes new work. Flags only; nothing here does IO."""

    def __init__(self) -> None:
        self.draining = False
        self._store_problem: ForebayError | None = None
        self._store_problem_at = 0.0

    def begin_drain(self) -> None:
        """Refuse new work from now on; answers about old work go on."""
        self.draining = True

    def store_failed(self, error: ForebayError, *, now: float) -> None:
        """Remember that a write failed."""
        self._store_problem, self._store_problem_at = error, now

    def store_worked(self) -> None:
        """Remember that a write succeeded."""
        self._store_problem = None

    def store_problem(self, *, now: float) -> ForebayError | None:
        """Return the failure of the last write while it is fresh. A broken store stays broken."""
        problem = self._store_problem
        if problem is None or problem.code == "store_broken":
            return problem
        return problem if now - self._store_problem_at < STORE_PROBLEM_SHOWN_S else None


@dataclass(slots=True, kw_only=True)
class Front:
    """What `make_app` needs. `gates`, `estimators`, `arrivals` and `peaks` have one entry per task."""

    broker: Broker
    tasks: Mapping[str, TaskSpec]
    estimators: Mapping[str, Estimator]
    gates: Mapping[str, Gate]
    arrivals: Mapping[str, ArrivalWindows]
    peaks: Mapping[str, Peak]  # of the jobs that wait
    settings: Settings
    clock: Clock
    meters: Meters
    log: Log
    node: NodeView | None = None
    neighbours: NeighboursView | None = None
    requests: Requests | None = None  # of the node in this process
    blobs: Keeper | None = None
    sender: SenderView | None = None
    crons: CronsView | None = None
    board: StreamBoard | None = None
    alarms: AlarmsView | None = None
    frames: FrameTaker | None = None
    callbacks: CallbackRules = field(default_factory=CallbackRules)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    budgets: Budgets = field(default_factory=Budgets)
    hub: Hub | None = None  # recent events of jobs; None: one that nothing feeds
    links: Links = field(default_factory=lambda: Links((os.urandom(32),)))
    version: str = "0"
    hosts_allowed: frozenset[str] | None = None  # names in Host; None: loopback names only
    watchman: Watchman = field(default_factory=lambda: Watchman(None))
    on_store_broken: Callable[[ForebayError], None] | None = None  # the process must end
