"""Turns: which line of one task gives the next job: the order between priorities and between tenants.

The one rule, used by every engine, so that they agree by construction:

1. The priority whose most urgent job has the least order key is served ...
2. ... unless a more urgent one has work of a tenant that had less service: age lifts a tenant's jobs over
   more urgent ones of its own and of tenants that had more, not of those that had less.
   What is reserved for urgent jobs (core.reserve) is not given to others.
3. Inside the priority the tenant that had the least service, on a tie the least order key.
4. Of the tenant the job with the least order key.

With one tenant this is the order of the keys and nothing else.
"""

from collections.abc import Iterable
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from forebay.core.fairness import FairShare
from forebay.core.reserve import Reserve

NO_DEADLINE_S: Final = 86_400.0  # a job without a deadline counts as due this long after it was ready
TENANTS_RANKED_MAX: Final = 64  # lines looked at one by one to tell a place in line

Key = tuple[float, Any]  # the order key, and the id or sequence that breaks ties


class Order(str, Enum):
    """What the order inside a priority goes by. A task's option."""

    ARRIVAL = "arrival"  # first ready, first served
    DEADLINE = "deadline"  # earliest deadline first; those without one last


def order_at(order: Order, ready_at: float, deadline_at: float | None) -> float:
    """Return the instant a job's order key is made of; `+ priority * AGEING_S` makes the key."""
    if order is Order.ARRIVAL:
        return ready_at
    return ready_at + NO_DEADLINE_S if deadline_at is None else deadline_at


class Line(Protocol):
    """The jobs of one task, one priority and one tenant that may be granted."""

    def head(self, now: float) -> Key | None:
        """Return the key of the most urgent job that may be granted at `now`, None when there is none."""
        ...


L = TypeVar("L", bound=Line)


class Place(NamedTuple, Generic[L]):
    """One line and whose it is."""

    priority: int
    tenant: str
    line: L


class Turns(Generic[L]):
    """The turns of one lease. Costs O(lines) to make and O(log lines) for each turn.

    The caller grants the head of the line that `next` named and says so with `granted`, before it asks again.
    """

    def __init__(self, fair: FairShare, reserve: Reserve, lines: Iterable[Place[L]], now: float) -> None:
        self._fair = fair
        self._reserve = reserve
        self._now = now
        self._heads: dict[tuple[int, str], Key] = {}
        self._places: dict[tuple[int, str], Place[L]] = {}
        self._of_tenant: dict[str, list[Place[L]]] = {}
        for place in lines:
            head = place.line.head(now)
            if head is not None and fair.shares.room(place.tenant) > 0 and reserve.room(place.priority) > 0:
                self._heads[place.priority, place.tenant] = head
                self._places[place.priority, place.tenant] = place
                self._of_tenant.setdefault(place.tenant, []).append(place)
        if len(self._of_tenant) > 1:
            fair.turn_on()
        self._spent = {tenant: fair.spent(tenant) for tenant in self._of_tenant}
        # Entries that no longer hold stay until they come up: (key, tenant) and (spent, key, tenant).
        self._by_key: dict[int, list[tuple[Key, str]]] = {}
        self._by_turn: dict[int, list[tuple[float, Key, str]]] = {}
        for (priority, tenant), head in self._heads.items():
            self._by_key.setdefault(priority, []).append((head, tenant))
            self._by_turn.setdefault(priority, []).append((self._spent[tenant], head, tenant))
        self._priorities = sorted(self._by_key)
        for priority in self._priorities:
            heapify(self._by_key[priority])
            heapify(self._by_turn[priority])

    @property
    def only_tenant(self) -> str | None:
        """The tenant, when jobs of one alone may be granted: the order of the keys is the order then."""
        return next(iter(self._of_tenant)) if len(self._of_tenant) == 1 else None

    def next(self) -> Place[L] | None:
        """Return the line whose head is to be granted next, None when there is none."""
        served: int | None = None
        least: Key | None = None
        turns: dict[int, tuple[float, Key, str]] = {}
        for priority in self._priorities:
            first, turn = self._first(priority), self._turn(priority)
            if first is None or turn is None:
                continue
            turns[priority] = turn
            if least is None or first < least:
                served, least = priority, first
        if served is None:
            return None
        for priority, turn in turns.items():  # the most urgent first
            if priority < served and turn[0] < turns[served][0]:
                served = priority
                break
        return self._places[served, turns[served][2]]

    def granted(self, place: Place[L], job: Any) -> None:
        """Take note that the head of the line was granted."""
        tenant, fair = place.tenant, self._fair
        fair.charge(tenant, job)
        fair.shares.began(tenant)
        if self._reserve.others_max is not None:
            self._began(place.priority)
        if fair.shares.room(tenant) <= 0:
            for other in self._of_tenant.pop(tenant):
                self._heads.pop((other.priority, tenant), None)
            return
        head = place.line.head(self._now)
        if head is None or self._reserve.room(place.priority) <= 0:
            self._heads.pop((place.priority, tenant), None)
        else:
            self._heads[place.priority, tenant] = head
            heappush(self._by_key[place.priority], (head, tenant))
        spent = self._spent[tenant] = fair.spent(tenant)
        for other in self._of_tenant[tenant]:
            head = self._heads.get((other.priority, tenant))
            if head is not None:
                heappush(self._by_turn[other.priority], (spent, head, tenant))

    def _began(self, priority: int) -> None:
        self._reserve.began(priority)
        if self._reserve.room(priority) <= 0:  # of this one, and so of all that are less than interactive
            for key in [key for key in self._heads if self._reserve.room(key[0]) <= 0]:
                del self._heads[key]

    def _first(self, priority: int) -> Key | None:
        heap = self._by_key[priority]
        while heap:
            head, tenant = heap[0]
            if self._heads.get((priority, tenant)) == head:
                return head
            heappop(heap)
        return None

    def _turn(self, priority: int) -> tuple[float, Key, str] | None:
        heap = self._by_turn[priority]
        while heap:
            spent, head, tenant = heap[0]
            if self._heads.get((priority, tenant)) == head and self._spent[tenant] == spent:
                return heap[0]
            heappop(heap)
        return None
