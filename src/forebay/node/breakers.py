"""InnerBreakers: named breakers inside handlers: where they stand, and what other processes are told of it.

A shared breaker opens and closes in all processes of a node as it does in one. Only what a process found out
by itself is passed on, once for each change, so nothing goes round; whoever comes later is told what is open.
"""

from collections.abc import Callable, Iterable, Mapping

from forebay.core.breaker import BreakerState
from forebay.node.facts import LaneFacts
from forebay.node.frames import BreakerReport, Breakers, ToldBreaker
from forebay.node.slot import BreakerSeen, Slot
from forebay.ports.clock import Clock

BREAKERS_MAX = 256  # named breakers shown of one child
USES_MAX = 1_024  # pairs of a lane and a name: names of processes that are gone make room
TASKS_MAX = 64  # that one breaker is said to be used by


class InnerBreakers:
    """Of all processes of one node. `slots` are the places of its replicas, by lane."""

    def __init__(
        self, slots: Callable[[], Iterable[tuple[str, Slot]]], *, facts: LaneFacts, clock: Clock
    ) -> None:
        self._slots = slots
        self._facts = facts
        self._clock = clock
        self._uses: dict[tuple[str, str], set[str]] = {}  # (lane, name) -> tasks whose calls it guards

    def heard(self, slot: Slot, news: Breakers) -> None:
        """Take in what the child in a slot tells, and pass on what is shared."""
        now = self._clock.now()
        for told in news.items:
            before = slot.breakers.get(told.name)
            if before is None and len(slot.breakers) >= BREAKERS_MAX:
                continue  # a child has no more names than this, unless user code writes to our descriptor
            changed = before is None or before.state != told.state
            since = now if before is None or changed else before.since
            slot.breakers[told.name] = BreakerSeen(
                told.state, told.trips, now + told.wait_s, told.reason, since, told.shared
            )
            uses = self._uses_of(slot.lane, told.name)
            uses.update(told.tasks[: TASKS_MAX - len(uses)])
            tripped = told.trips - (0 if before is None else before.trips)
            self._facts.breaker(slot.name, told.name, told.state, tripped, told.reason, told.tasks)
            if told.shared and not told.told and changed:
                self._pass_on(slot, told, now, first=before is None)

    def shown(self) -> list[Mapping[str, object]]:
        """Return the breakers of every replica that has some: `worker`, `task` (its lane) and `breakers`."""
        return [
            {"worker": slot.name, "task": lane, "breakers": self.shown_of(slot)}
            for lane, slot in self._slots()
            if slot.breakers
        ]

    def shown_of(self, slot: Slot) -> list[dict[str, object]]:
        """Return the breakers of one replica, as GET /v1/workers shows them."""
        now = self._clock.now()
        return [
            {
                **seen.shown(name, now=now),
                "since": seen.since,
                "tasks": sorted(self._uses.get((slot.lane, name), ())),
                "shared": seen.shared,
            }
            for name, seen in slot.breakers.items()
        ]

    def _uses_of(self, lane: str, name: str) -> set[str]:
        key = (lane, name)
        if key not in self._uses and len(self._uses) >= USES_MAX:  # a name may hold the number of its process
            held = {(slot.lane, held) for _, slot in self._slots() for held in slot.breakers}
            self._uses = {one: uses for one, uses in self._uses.items() if one in held}
        return self._uses.setdefault(key, set())

    def _pass_on(self, slot: Slot, told: BreakerReport, now: float, *, first: bool) -> None:
        if told.state == BreakerState.HALF_OPEN.value:
            return
        if first and told.state == BreakerState.CLOSED.value:
            self._catch_up(slot, told.name, now)
            return
        for other in self._others(slot, told.name):
            _tell(other, told.name, told.state, told.wait_s, told.reason)

    def _catch_up(self, slot: Slot, name: str, now: float) -> None:
        """Tell who has just come of a breaker that is open elsewhere: of the one that is tried first."""
        seen = [other.breakers[name] for other in self._others(slot, name)]
        waits = [(one.wait_s(now), one.reason) for one in seen if one.wait_s(now) > 0]
        if waits:
            _tell(slot, name, BreakerState.OPEN.value, *min(waits))

    def _others(self, slot: Slot, name: str) -> list[Slot]:
        found = (other for _, other in self._slots() if other is not slot)
        return [other for other in found if name in other.breakers and other.breakers[name].shared]


def _tell(slot: Slot, name: str, state: str, wait_s: float, reason: str) -> None:
    if slot.replica is not None:
        slot.replica.tell(ToldBreaker(name, state, wait_s, reason))
