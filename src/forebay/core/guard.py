"""Guard: a breaker as one Dispatcher holds it: for a task, or for its jobs as guests of its fallback."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from forebay.core.breaker import BreakerState, Change, CircuitBreaker, Permit
from forebay.core.replicas import Item
from forebay.core.task import TaskSpec

CANNED_MAX: Final = 256  # jobs leased at once to be answered with a canned answer
CHANGES_MAX: Final = 64  # kept until somebody takes them


class Guard:
    """One breaker. A guest leases while it is not closed, the task itself while it is not open."""

    __slots__ = ("breaker", "canned", "changes", "guest", "host", "may_probe", "permit", "probe_tag")

    def __init__(
        self,
        breaker: CircuitBreaker,
        *,
        canned: bytes | None = None,
        guest: bool = False,
        host: CircuitBreaker | None = None,
    ) -> None:
        self.breaker = breaker
        self.canned = canned
        self.guest = guest
        self.host = host  # of a guest: the breaker of the task it is run as
        self.changes: deque[Change] = deque(maxlen=CHANGES_MAX)
        self.permit: Permit | None = None  # the last one given
        self.may_probe = False  # what was asked for last may bring the probe
        self.probe_tag: int | None = None  # of the item that is the probe

    def take(self, item: Item) -> None:
        """Give a new item the permit that `admit` got for it."""
        item.permit = self.permit
        if self.permit is not None and self.permit.probe:
            self.probe_tag = item.tag

    def limit(self, room: int, now: float) -> int:
        """Return how many jobs to lease where the replicas have room for so many."""
        state = self.breaker.state(now=now)
        if self.guest:
            shut = self.host is not None and self.host.state(now=now) is not BreakerState.CLOSED
            return 0 if shut or state is BreakerState.CLOSED else room
        self.may_probe = False
        if state is BreakerState.CLOSED:
            return room
        free = state is BreakerState.HALF_OPEN and self.breaker.retry_after_s(now=now) == 0.0
        self.may_probe = free and room > 0 and self.probe_tag is None
        return CANNED_MAX if self.canned is not None else int(self.may_probe)

    def note(self, change: Change | None) -> None:
        """Keep a change for whoever tells of it."""
        if change is not None:
            self.changes.append(change)


def guest_of(task: TaskSpec, fallback: TaskSpec) -> TaskSpec:
    """Return how the replicas of `fallback` see the jobs of `task`: its service, with the task's own name
    and the task's rules for its jobs."""
    return replace(
        fallback,
        name=task.name,
        version=task.version,
        on_version=task.on_version,
        settle=task.settle,
        attempts_max=task.attempts_max,
        breaker=None,
        fallback="",
        canned=None,
        ladder=None,
    )


def guests_of(specs: Sequence[TaskSpec], tasks: Sequence[TaskSpec]) -> list[tuple[TaskSpec, str]]:
    """Return the tasks whose jobs the replicas of `specs` stand in for, each with the task it is run as."""
    return [
        (guest_of(task, host), host.name) for host in specs for task in tasks if task.fallback == host.name
    ]


def guards_of(
    specs: Sequence[TaskSpec],
    guests: Sequence[tuple[TaskSpec, str]],
    breakers: Mapping[str, CircuitBreaker],
) -> dict[str, Guard]:
    """Return the guards of a set of replicas: of its own tasks with a breaker, and of its guests."""
    guards = {
        spec.name: Guard(breakers[spec.name], canned=spec.canned) for spec in specs if spec.name in breakers
    }
    for guest, host in guests:
        guards[guest.name] = Guard(breakers[guest.name], guest=True, host=breakers.get(host))
    return guards
