"""Faults as data: drawn from the seed before the run, so that a schedule can be cut down and replayed."""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from forebay.sim.chance import Chance


class FaultKind(str, Enum):
    """What can go wrong. The first five happen to a process, the rest last for a window of time."""

    CHILD_CRASH = "child_crash"
    CHILD_PAUSE = "child_pause"  # SIGSTOP, then SIGCONT
    NODE_PAUSE = "node_pause"  # the parent and its children
    NODE_CRASH = "node_crash"  # kill -9 of the parent; children die with it; restarted
    NODE_DRAIN = "node_drain"  # SIGTERM, the grace, the end; restarted

    COMMIT_LOST = "commit_lost"  # the request never reaches the store
    COMMIT_UNANSWERED = "commit_unanswered"  # stored, the answer is lost
    COMMIT_TWICE = "commit_twice"
    EXTEND_LOST = "extend_lost"
    EXTEND_UNANSWERED = "extend_unanswered"
    LEASE_UNANSWERED = "lease_unanswered"  # granted, and nobody knows
    REPLY_LATE = "reply_late"
    BELL_LOST = "bell_lost"
    SUBMIT_LOST = "submit_lost"
    SUBMIT_UNANSWERED = "submit_unanswered"
    SUBMIT_TWICE = "submit_twice"
    STORE_FULL = "store_full"  # nothing can be written
    CLOCK_BACK = "clock_back"  # a node's clock lags
    CLOCK_JUMP = "clock_jump"  # somebody sets the wall clock: an anchored clock is deaf to it


POINTS = (
    FaultKind.CHILD_CRASH,
    FaultKind.CHILD_PAUSE,
    FaultKind.NODE_PAUSE,
    FaultKind.NODE_CRASH,
    FaultKind.NODE_DRAIN,
)


class Fault(NamedTuple):
    """One thing that goes wrong. `which` picks the node or child, `share` is how often in a window."""

    kind: FaultKind
    at: float
    for_s: float
    which: int = 0
    share: float = 1.0
    seed: int = 0


class Windows:
    """The faults that last: asks whether one strikes now. Each draws from a stream of its own, so that
    taking one fault out of a schedule leaves the others as they were."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._open: dict[FaultKind, list[tuple[Fault, Chance]]] = {}
        for fault in faults:
            if fault.kind not in POINTS:
                self._open.setdefault(fault.kind, []).append((fault, Chance(fault.seed)))

    def strike(self, kind: FaultKind, now: float) -> Fault | None:
        """Return the fault of this kind that strikes at this occasion, None when none does."""
        for fault, chance in self._open.get(kind, ()):
            if fault.at <= now < fault.at + fault.for_s and chance.hit(fault.share):
                return fault
        return None


def draw_faults(chance: Chance, *, start: float, until: float, lease_s: float) -> list[Fault]:
    """Draw a schedule: a random subset of the kinds, each at its own rate (swarm testing)."""
    faults: list[Fault] = []
    level = chance.pick((0.0, 0.15, 0.3, 0.5))
    for kind in FaultKind:
        if not chance.hit(level):
            continue
        for _ in range(chance.whole(1, 3)):
            at = chance.between(start, until)
            if kind in POINTS:
                for_s = chance.pick((0.05, 0.5, lease_s / 2, lease_s * 1.5))
            else:
                for_s = chance.between(0.2, (until - start) / 2)
            share = chance.pick((0.1, 0.5, 1.0))
            which = chance.whole(0, 7)
            faults.append(Fault(kind, at, min(for_s, until - at), which, share, chance.bits()))
    return sorted(faults, key=lambda fault: fault.at)
