"""Scaling: how many replicas the work needs; when more are started, and when idle ones are let go.

Up follows what waits: more, when the last of it would start later than wanted, seen for `short_s`. Down is
slow: fewer, when fewer would have done for all of `calm_s`. What is busy is never asked for.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from forebay.core.estimator import Estimator
from forebay.core.task import TaskSpec
from forebay.core.units import print_duration

WAIT_S = 10.0
CALM_S = 60.0
SHORT_S = 2.0  # a burst that ends by itself before starts nothing
STEP = 2  # at most so many times as many at once: what these change is seen first
FULL = 0.9  # of the time of a replica: busier than that on average, and it has no fellow too many
COST_MAX = 2**31 - 1  # what orchestrators take
PARTS = 6  # of the calm: a mean over each


def wanted(*, waiting: int, running: int, run_s: float | None, at_once: int, wait_s: float) -> int:
    """Return the fewest replicas with which the last item that waits starts within `wait_s`, and that hold
    what runs now. 0 when nothing waits or runs.

    A full run of `at_once` items takes `run_s`. Where that is longer than the wait, what waits needs replicas
    besides those that are busy; where it is not known, as many more at most as there are: a thousand jobs may
    be the work of a second.
    """
    busy, batches = -(-running // at_once), -(-waiting // at_once)
    if not waiting:
        return busy
    if run_s is None:
        return busy + min(batches, max(1, busy))
    if run_s > wait_s:
        return busy + batches
    turns = math.floor(wait_s / max(run_s, 1e-6))  # runs that one replica begins and ends in the time
    return max(busy, -(-(waiting + running) // (turns * at_once)))


def wanted_of(
    estimator: Estimator, spec: TaskSpec, *, waiting: int, running: int, wait_s: float, now: float
) -> int:
    """Return how many replicas a task needs on all nodes together: by what waits and runs, and as many as
    were busy on average of late. Knows nothing of what is refused at the door."""
    at_once, facts = max(spec.batch_max, spec.concurrency), estimator.service.facts()
    run_s = None if facts is None else estimator.service.run_s(spec.batch_max)
    busy = 0.0 if facts is None else estimator.measured_drain_per_s(now=now) * facts.item_s / spec.concurrency
    need = wanted(waiting=waiting, running=running, run_s=run_s, at_once=at_once, wait_s=wait_s)
    return max(need, math.ceil(busy - 1e-9))


def deletion_cost(*, in_hand: int, idle_s: float) -> int:
    """Return what the end of a node would cost, for those who end nodes: the lowest goes first. Above 0: so
    many items run there; else it has been idle for so many seconds."""
    return min(in_hand, COST_MAX) if in_hand else -min(math.floor(max(0.0, idle_s)), COST_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePolicy:
    """The bounds of a set of replicas, and when it changes."""

    least: int = 1
    most: int = 1
    wait_s: float = WAIT_S  # what waits should have started within
    calm_s: float = CALM_S  # so long fewer must have been enough before any goes
    short_s: float = SHORT_S

    def __post_init__(self) -> None:
        assert 1 <= self.least <= self.most
        assert self.wait_s > 0
        assert self.calm_s > 0
        assert self.short_s >= 0


class Seen(NamedTuple):
    """One look at a set of replicas."""

    ready: int
    full: int  # of them, those with as much as they run at once
    load: float  # of them, the sum of how full each is: 1 is full
    coming: int  # that load, or wait to be started again, but for those that are broken
    waiting: int  # items that wait and may run
    refused: bool = False  # since the last look somebody was refused who would have waited too long
    run_s: float | None = None  # a full run takes so long; None: never seen
    at_once: int = 1  # items of a full run
    load_s: float = 0.0  # a start takes so long
    room: int | None = None  # so many more the memory has room for; None: nobody looked
    broken: int = 0  # that end again and again before they serve: nobody waits for them


class ScaleDecision(NamedTuple):
    """So many replicas from now on. As many as before: more are needed, and cannot be had."""

    replicas: int
    was: int
    reason: str


class Scaler:
    """Decides how many replicas there are. Ask it at each look, several times a second."""

    def __init__(self, policy: ScalePolicy) -> None:
        self.policy = policy
        self.replicas = policy.least
        self._short_since: float | None = None
        self._needed_at = float("-inf")  # when all of them were last known to be needed
        self._parts: deque[_Part] = deque(maxlen=PARTS + 1)

    def decide(self, seen: Seen, *, now: float) -> ScaleDecision | None:
        """Return another number of replicas, or that more cannot be had; None when nothing is to be said.
        `now` never goes back."""
        if self._needed_at == float("-inf"):
            self._needed_at = now
        self._note(seen, now)
        policy, was = self.policy, self.replicas
        need = self._need(seen) + seen.broken
        if need > was or (seen.coming and need >= was):
            self._needed_at = now
        if need <= was or was >= policy.most:
            self._short_since = None
            return self._fewer(now)
        if self._short_since is None:
            self._short_since = now
        if seen.coming or now - self._short_since < policy.short_s:  # they may be enough
            return None
        self._short_since = None
        most = policy.most if seen.room is None else min(policy.most, was + seen.room)
        self.replicas = max(was, min(need, STEP * was, most))
        if self.replicas == was:
            return ScaleDecision(was, was, f"{self._why_more(seen)}, but the memory has no room for another")
        return ScaleDecision(self.replicas, was, self._why_more(seen))

    def _need(self, seen: Seen) -> int:
        """Return how many replicas what runs and waits needs now. Beside a replica with room nothing waits
        for a replica: its queue is paused, its turn has not come, or it is just being sent."""
        if not seen.ready or seen.full < seen.ready:
            return math.ceil(seen.load)
        running = seen.ready * seen.at_once
        wait_s = max(self.policy.wait_s, seen.load_s)
        need = wanted(
            waiting=seen.waiting, running=running, run_s=seen.run_s, at_once=seen.at_once, wait_s=wait_s
        )
        return max(need, seen.ready + 1) if seen.refused else need

    def _fewer(self, now: float) -> ScaleDecision | None:
        """Return a smaller number once it would have been enough for all of the calm."""
        policy, was = self.policy, self.replicas
        if was <= policy.least or now - self._needed_at < policy.calm_s:
            return None
        # Short runs that now and then fall together fill many replicas that are hardly used. But of long ones
        # each needs its own, however idle a further one makes the mean.
        mean, peak = max(part.mean for part in self._parts), max(part.peak for part in self._parts)
        need = max(policy.least, min(math.ceil(mean / FULL - 1e-9), math.ceil(peak - 1e-9)))
        if need >= was:
            return None
        self.replicas, self._needed_at = need, now
        reason = f"at most {mean:.2g} of {was} were busy for {print_duration(policy.calm_s)}"
        return ScaleDecision(need, was, reason)

    def _note(self, seen: Seen, now: float) -> None:
        length_s = self.policy.calm_s / PARTS
        if not self._parts or now - self._parts[-1].began_at >= length_s:
            self._parts.append(_Part(now))
        self._parts[-1].take(seen.load)

    def _why_more(self, seen: Seen) -> str:
        if seen.refused:
            return f"all {seen.ready} are busy, and requests are refused that would wait too long"
        if seen.run_s is None:
            return f"all {seen.ready} are busy, {seen.waiting} wait"
        takes_s = seen.waiting / (seen.ready * seen.at_once) * seen.run_s
        return f"all {seen.ready} are busy, and the {seen.waiting} that wait take {print_duration(takes_s)}"


class _Part:
    """A part of the calm."""

    __slots__ = ("_looks", "_sum", "began_at", "peak")

    def __init__(self, began_at: float) -> None:
        self.began_at = began_at
        self.peak = 0.0
        self._sum, self._looks = 0.0, 0

    def take(self, load: float) -> None:
        """Take in one look."""
        self._sum += load
        self._looks += 1
        self.peak = max(self.peak, load)

    @property
    def mean(self) -> float:
        return self._sum / self._looks
