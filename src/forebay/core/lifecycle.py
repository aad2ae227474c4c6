"""State, Event, TRANSITIONS: the one table of a job's life.

Two rules hold in this file and nowhere else. A state changes only along a row of `TRANSITIONS`.
A final state is never left: redrive and replay make a new job that is linked to the old one.

`queued` means "may run now". Jobs that wait for a time are `scheduled` or `retrying`, and time alone
moves them (`due`), so a lease needs no time filter but the TTL.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class State(str, Enum):
    """Where a job stands. The first four are open, the last four are final."""

    SCHEDULED = "scheduled"  # waits for its `run_at`, or was deferred
    QUEUED = "queued"  # may run now
    RUNNING = "running"  # leased by a node, proven by a fence
    RETRYING = "retrying"  # failed, waits out its backoff
    SUCCEEDED = "succeeded"
    DEAD = "dead"  # the dead letter: attempts used up, permanent failure or poison
    CANCELLED = "cancelled"
    EXPIRED = "expired"  # its ttl passed while waiting, or its deadline passed


class Event(str, Enum):
    """What can happen to a job."""

    DUE = "due"  # the time it waited for has come
    LEASED = "leased"  # granted to a node; the attempt is charged here
    COMPLETED = "completed"
    FAILED = "failed"  # will be tried again after its backoff
    EXHAUSTED = "exhausted"  # will not be tried again
    RELEASED = "released"  # clean hand-back; the attempt is refunded
    DEFERRED = "deferred"  # handed back until a time; the attempt is refunded
    SUSPECTED = "suspected"  # a batch mate may have killed the child; refunded, runs alone next
    LOST = "lost"  # the node died or the lease ran out; the attempt stays charged
    TTL_PASSED = "ttl_passed"
    DEADLINE_PASSED = "deadline_passed"
    CANCELLED = "cancelled"


class IllegalTransitionError(Exception):
    """An event met a state it has no row for. The job is unchanged."""


_END_WHILE_WAITING: Final[Mapping[Event, State]] = MappingProxyType(
    {
        Event.TTL_PASSED: State.EXPIRED,
        Event.DEADLINE_PASSED: State.EXPIRED,
        Event.CANCELLED: State.CANCELLED,
    }
)

TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = MappingProxyType(
    {
        State.SCHEDULED: MappingProxyType({Event.DUE: State.QUEUED, **_END_WHILE_WAITING}),
        State.QUEUED: MappingProxyType({Event.LEASED: State.RUNNING, **_END_WHILE_WAITING}),
        State.RETRYING: MappingProxyType({Event.DUE: State.QUEUED, **_END_WHILE_WAITING}),
        State.RUNNING: MappingProxyType(
            {
                Event.COMPLETED: State.SUCCEEDED,
                Event.FAILED: State.RETRYING,
                Event.EXHAUSTED: State.DEAD,
                Event.RELEASED: State.QUEUED,
                Event.SUSPECTED: State.QUEUED,
                Event.LOST: State.QUEUED,
                Event.DEFERRED: State.SCHEDULED,
                Event.DEADLINE_PASSED: State.EXPIRED,
                Event.CANCELLED: State.CANCELLED,
            }
        ),
        State.SUCCEEDED: MappingProxyType({}),
        State.DEAD: MappingProxyType({}),
        State.CANCELLED: MappingProxyType({}),
        State.EXPIRED: MappingProxyType({}),
    }
)

FINAL: Final[frozenset[State]] = frozenset(state for state, rows in TRANSITIONS.items() if not rows)
WAITING: Final[frozenset[State]] = frozenset({State.SCHEDULED, State.QUEUED, State.RETRYING})


def next_state(state: State, event: Event) -> State:
    """Return the state that `event` leads to from `state`.

    Raises IllegalTransitionError when the table has no such row; nothing has changed then.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransitionError(f"a {state.value} job cannot take the event {event.value}") from None


# HTTP's coarse word for each state (what most clients poll for).
STATUS: Final[Mapping[State, str]] = MappingProxyType(
    {
        State.SCHEDULED: "PENDING",
        State.QUEUED: "PENDING",
        State.RETRYING: "PENDING",
        State.RUNNING: "PROCESSING",
        State.SUCCEEDED: "COMPLETED",
        State.DEAD: "FAILED",
        State.CANCELLED: "CANCELLED",
        State.EXPIRED: "EXPIRED",
    }
)
