"""Variants of a task: which of them runs now, by how full its reservoir is: hysteresis, one step at a time.

Level 0 is the task itself, level n its nth variant. Ordinary work goes down all the levels first; only then,
and only while there is any, work above normal priority goes down them too.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from forebay.core.degraded import FALLBACK
from forebay.core.job import PRIORITY_NORMAL

RUNGS_MAX: Final = FALLBACK - 1  # a result keeps its level in four bits, the last of them is the fallback's
ENTER: Final = 0.75  # of the reservoir: from here on a task goes down
LEAVE: Final = 0.5  # down to here it may go up again
STAY_S: Final = 1.0
DEEPER_SHARE: Final = 0.25  # of the stay, before it goes down once more: a step has had time to tell by then
BUSY_MAX: Final = 0.9  # of the replicas' time: what comes must fit one level up, or going up is in vain
RELAPSE_STAYS: Final = 4.0  # going down again within so many stays: going up was wrong
RELAPSES_MAX: Final = 5  # each doubles the calm that is asked for before the next try
STRAIN_S: Final = 0.25  # what the last callers were told of the reservoir is true for so long
LOOK_S: Final = 0.1  # how often a task that is down looks whether it may go up


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One variant: it runs from `enter` on and until `leave`, as shares of the reservoir; 1 is full."""

    name: str = ""
    quality: float | None = None  # beside the task itself, which is 1; None: its owner does not say
    enter: float = ENTER
    leave: float = LEAVE

    def __post_init__(self) -> None:
        assert 0 <= self.leave < self.enter


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderPolicy:
    """The variants of a task, from the best to the cheapest, and how long a level is kept at least."""

    rungs: tuple[Rung, ...]
    stay_s: float = STAY_S

    def __post_init__(self) -> None:
        assert 1 <= len(self.rungs) <= RUNGS_MAX and self.stay_s > 0


class Seen(NamedTuple):
    """What the ladder looks at. `fill`: of the reservoir, 1 is full. `busy`: the share of the replicas' time
    that what comes now would take one step up. `urgent`: there is work above normal priority."""

    fill: float
    busy: float
    urgent: bool = False


class Moved(NamedTuple):
    """A step that was made, when, and what was seen."""

    was: int
    step: int
    at: float
    fill: float
    busy: float


class Ladder:
    """Where one task stands. `step` counts the levels of ordinary work, beyond them those of urgent work."""

    __slots__ = (
        "_calm_at",
        "_changed_at",
        "_proved",
        "_relapses",
        "_rose",
        "_strain",
        "_strain_at",
        "policy",
        "step",
    )

    def __init__(self, policy: LadderPolicy) -> None:
        self.policy = policy
        self.step = 0
        self._changed_at = float("-inf")
        self._calm_at: float | None = None  # since when it could go up
        self._proved = True  # something that was sent at this step has ended
        self._rose = False  # the last step was up
        self._relapses = 0
        self._strain = 0.0
        self._strain_at = float("-inf")

    def level(self, priority: int) -> int:
        """Return the level at which work of this priority runs now."""
        most = len(self.policy.rungs)
        return max(0, self.step - most) if priority < PRIORITY_NORMAL else min(self.step, most)

    def level_above(self, *, urgent: bool) -> int:
        """Return the level that urgent or ordinary work would have one step up."""
        most = len(self.policy.rungs)
        return max(0, self.step - 1 - most) if urgent else min(max(0, self.step - 1), most)

    def press(self, share: float, *, now: float) -> None:
        """Take in what share of its time a request needs that comes now; 1 and more is refused."""
        if share >= self._strain or now - self._strain_at > STRAIN_S:
            self._strain, self._strain_at = share, now

    def strain(self, *, now: float) -> float:
        """Return the most that a request lately needed of its time, 0 when none came lately."""
        return self._strain if now - self._strain_at <= STRAIN_S else 0.0

    def ran(self, sent_at: float) -> None:
        """A run ended that was sent then. From the first one of a step on it is known what the step brings;
        what callers were told before says nothing of it."""
        if not self._proved and sent_at >= self._changed_at:
            self._proved = True
            self._forget_strain()

    def see(self, seen: Seen, *, now: float) -> Moved | None:
        """Make one step where it is time for one, and return it.

        Down: the reservoir is as full as the next variant asks, a quarter of the stay has passed, and what
        the last step brought has been seen. Up: for a whole stay it has been no fuller than this variant
        asks, and what comes would fit one level up. Who went up in vain waits twice as long the next time.
        """
        most = len(self.policy.rungs) * (2 if seen.urgent else 1)
        stay_s, since_s = self.policy.stay_s, now - self._changed_at
        if self.step < most and seen.fill >= self._rung(self.step + 1).enter:
            self._calm_at = None
            if since_s < DEEPER_SHARE * stay_s or not self._proved:
                return None
            relapsed = self._rose and since_s < RELAPSE_STAYS * stay_s
            if self._rose or self.step == 0:
                self._relapses = min(RELAPSES_MAX, self._relapses + 1) if relapsed else 0
            return self._go(self.step + 1, seen, now)
        if not self.step or seen.fill > self._rung(self.step).leave or seen.busy > BUSY_MAX:
            self._calm_at = None
            return None
        if self._calm_at is None:
            self._calm_at = now
        if now - max(self._calm_at, self._changed_at) < stay_s * 2.0**self._relapses:
            return None
        return self._go(self.step - 1, seen, now)

    def wake_at(self, now: float) -> float | None:
        """Return when to look again if nothing happens, None while the task itself runs."""
        return now + LOOK_S if self.step else None

    def _rung(self, step: int) -> Rung:
        return self.policy.rungs[(step - 1) % len(self.policy.rungs)]

    def _go(self, step: int, seen: Seen, now: float) -> Moved:
        moved = Moved(self.step, step, now, seen.fill, seen.busy)
        self._rose = step < self.step
        self.step, self._changed_at, self._calm_at, self._proved = step, now, None, False
        self._forget_strain()  # it was told of the step before
        return moved

    def _forget_strain(self) -> None:
        self._strain, self._strain_at = 0.0, float("-inf")
