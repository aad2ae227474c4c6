"""CircuitBreaker: closed, open, half-open: whether to call what has been failing; every change says why."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

SLICES: Final = 20  # of a window: what counts is at most one slice younger than the window says
PROBE_WAIT_S: Final = 1.0  # what a caller is told to wait while a probe is out
# What was told to be open is so for this much longer: whoever found it out probes first.
FOLLOW_S: Final = 1.0
HUNG_MIN: Final = 3  # failed calls that hung for long are enough to judge by, however few others ended


class BreakerState(str, Enum):
    """Whether calls go through."""

    CLOSED = "closed"  # all of them
    OPEN = "open"  # none
    HALF_OPEN = "half_open"  # one, the probe


class Ending(str, Enum):
    """What a call says about the health of what it called."""

    GOOD = "good"
    BAD = "bad"
    IGNORED = "ignored"  # nothing: cancelled, or an error that is the caller's


class Cause(str, Enum):
    """Why a breaker changed its state."""

    FAILURES = "failures"  # so many bad calls within the window
    RATE = "rate"  # such a share of the calls within the window was bad
    PROBE = "probe"  # it has been open for long enough: one call may try
    RECOVERED = "recovered"  # the probe went well
    PROBE_BAD = "probe_bad"  # the probe failed or was slow
    TOLD_BAD = "told_bad"  # the breaker of this name in another process opened
    TOLD_WELL = "told_well"  # and there a probe went well


# The one table of a breaker's life.
CHANGES: Final[Mapping[BreakerState, Mapping[Cause, BreakerState]]] = MappingProxyType(
    {
        BreakerState.CLOSED: MappingProxyType(
            {
                Cause.FAILURES: BreakerState.OPEN,
                Cause.RATE: BreakerState.OPEN,
                Cause.TOLD_BAD: BreakerState.OPEN,
            }
        ),
        BreakerState.OPEN: MappingProxyType(
            {Cause.PROBE: BreakerState.HALF_OPEN, Cause.TOLD_WELL: BreakerState.CLOSED}
        ),
        BreakerState.HALF_OPEN: MappingProxyType(
            {
                Cause.RECOVERED: BreakerState.CLOSED,
                Cause.PROBE_BAD: BreakerState.OPEN,
                Cause.TOLD_BAD: BreakerState.OPEN,
                Cause.TOLD_WELL: BreakerState.CLOSED,
            }
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """When a breaker opens, and for how long. A bad call is one that failed or took longer than `slow_s`.

    It opens at `failures` bad calls within the window, and when at least `calls_min` calls ended within it
    and `rate` of them were bad; either may be None. Towards `calls_min` a failed call counts once for each
    `slow_s` that it took, up to a third: few calls end where each hangs, and the fewer the longer it hangs.
    """

    failures: int | None = None
    rate: float | None = 0.5
    window_s: float = 10.0
    calls_min: int = 10
    slow_s: float | None = None
    open_s: float = 30.0
    probe_max_s: float = 60.0  # a probe that has not ended by then is given up, and another may go

    def __post_init__(self) -> None:
        assert self.failures is not None or self.rate is not None
        assert self.window_s > 0 and self.open_s > 0 and self.probe_max_s > 0 and self.calls_min >= 1


class Change(NamedTuple):
    """A breaker changed: from what to what, and why."""

    was: BreakerState
    state: BreakerState
    cause: Cause
    reason: str  # for people: "6 of 10 calls bad within 10 s (rate 0.5)"
    at: float


class Permit(NamedTuple):
    """The right to make one call. Give it back with `CircuitBreaker.ended`."""

    number: int  # of the period it belongs to; what ends after that period says nothing any more
    probe: bool
    at: float
    change: Change | None = None  # what asking for it changed


class Refused(NamedTuple):
    """No call now; worth asking again after `retry_after_s`, at the earliest."""

    retry_after_s: float


class CircuitBreaker:
    """Counts how calls end. `ask` before a call, `ended` after it; no clock inside, any thread's own lock."""

    __slots__ = (
        "_bad", "_bad_at", "_calls", "_extra", "_number", "_probe_at", "_slice", "_state", "open_until",
        "policy", "reason", "trips",
    )  # fmt: skip

    def __init__(self, policy: BreakerPolicy) -> None:
        self.policy = policy
        self.trips = 0  # times it went from closed to open
        self.reason = ""  # of the last change
        self.open_until = 0.0  # when it is open: the first instant of a probe
        self._state = BreakerState.CLOSED
        self._number = 0
        self._probe_at: float | None = None  # when the probe that is out began
        self._calls = [0] * SLICES
        self._bad = [0] * SLICES
        self._extra = [0] * SLICES  # what bad calls count for beyond one, towards calls_min
        self._slice = 0  # number of the newest slice, counted from the epoch of the clock
        self._bad_at: deque[float] = deque(maxlen=policy.failures or 1)

    def state(self, *, now: float) -> BreakerState:
        """Return the state; an open one whose time has come counts as half-open."""
        if self._state is BreakerState.OPEN and now >= self.open_until:
            return BreakerState.HALF_OPEN
        return self._state

    def retry_after_s(self, *, now: float) -> float:
        """Return the seconds until a call may go through; 0.0 when one may now."""
        if self._state is BreakerState.OPEN:
            return max(0.0, self.open_until - now)
        if self._state is BreakerState.CLOSED or self._probe_free(now):
            return 0.0
        return PROBE_WAIT_S

    def ask(self, *, now: float) -> Permit | Refused:
        """Return a Permit for one call, or why there is none. The first one after its time is the probe."""
        if self._state is BreakerState.CLOSED:
            return Permit(self._number, False, now)
        wait_s = self.retry_after_s(now=now)
        if wait_s > 0:
            return Refused(wait_s)
        change = None
        if self._state is BreakerState.OPEN:
            change = self._change(Cause.PROBE, f"open for {self.policy.open_s:g} s: one call may try", now)
        self._number += 1  # an earlier probe that never ended says nothing any more
        self._probe_at = now
        return Permit(self._number, True, now, change)

    def ended(
        self, permit: Permit, ending: Ending, *, now: float, took_s: float | None = None
    ) -> Change | None:
        """Take in how a call ended and return what that changed. A good one that took longer than `slow_s`
        is bad. `took_s`: since the permit, when not given. Ignored endings free the probe's place."""
        if permit.number != self._number:
            return None
        slow_s = self.policy.slow_s
        took_s = now - permit.at if took_s is None else took_s
        slow = ending is Ending.GOOD and slow_s is not None and took_s > slow_s
        if self._state is BreakerState.HALF_OPEN:
            return self._probed(ending, slow, took_s, now)
        if self._state is BreakerState.OPEN or ending is Ending.IGNORED:
            return None
        return self._count(slow or ending is Ending.BAD, took_s if ending is Ending.BAD else 0.0, now)

    def told(self, state: BreakerState, *, wait_s: float, reason: str, now: float) -> Change | None:
        """Take over what the breaker of this name in another process found out: that it is open for `wait_s`,
        or well. It is no trip of this one; calls that are out say nothing any more."""
        if state is BreakerState.CLOSED:
            well = self._state is BreakerState.CLOSED
            return None if well else self._change(Cause.TOLD_WELL, reason, now)
        if state is not BreakerState.OPEN or wait_s <= 0:
            return None
        until = now + min(wait_s, self.policy.open_s) + FOLLOW_S
        change = None
        if self._state is not BreakerState.OPEN:
            change = self._change(Cause.TOLD_BAD, reason, now)
            self.open_until = until
        self.open_until = max(self.open_until, until)
        return change

    def _probed(self, ending: Ending, slow: bool, took_s: float, now: float) -> Change | None:
        self._probe_at = None
        if ending is Ending.IGNORED:
            return None
        if ending is Ending.GOOD and not slow:
            return self._change(Cause.RECOVERED, "the probe went well", now)
        why = f"took {took_s:.3g} s (slow: {self.policy.slow_s:g} s)" if slow else "failed"
        return self._change(Cause.PROBE_BAD, f"the probe {why}", now)

    def _count(self, bad: bool, hung_s: float, now: float) -> Change | None:
        policy = self.policy
        self._turn(now)
        place = self._slice % SLICES
        self._calls[place] += 1
        if not bad:
            return None
        self._bad[place] += 1
        if policy.slow_s is not None:
            most = -(-policy.calls_min // HUNG_MIN)
            self._extra[place] += max(0, int(min(most, hung_s / policy.slow_s)) - 1)
        if policy.failures is not None:
            self._bad_at.append(now)
            if len(self._bad_at) == policy.failures and now - self._bad_at[0] <= policy.window_s:
                return self._change(
                    Cause.FAILURES, f"{policy.failures} bad calls within {policy.window_s:g} s", now
                )
        calls, count = sum(self._calls), sum(self._bad)
        enough = calls + sum(self._extra) >= policy.calls_min
        if policy.rate is None or not enough or count < policy.rate * calls:
            return None
        told = f"{count} of {calls} calls bad within {policy.window_s:g} s (rate {policy.rate:g})"
        return self._change(Cause.RATE, told, now)

    def _turn(self, now: float) -> None:
        """Forget the slices that have left the window. A clock that goes back moves nothing."""
        newest = int(now / self.policy.window_s * SLICES)
        for number in range(max(self._slice + 1, newest - SLICES + 1), newest + 1):
            self._calls[number % SLICES] = self._bad[number % SLICES] = self._extra[number % SLICES] = 0
        self._slice = max(self._slice, newest)

    def _probe_free(self, now: float) -> bool:
        return self._probe_at is None or now >= self._probe_at + self.policy.probe_max_s

    def _change(self, cause: Cause, reason: str, now: float) -> Change:
        was, self._state = self._state, CHANGES[self._state][cause]
        self.reason = reason
        self._number += 1
        self._probe_at = None
        if self._state is BreakerState.OPEN:
            self.open_until = now + self.policy.open_s
            self.trips += was is BreakerState.CLOSED and cause is not Cause.TOLD_BAD
        elif self._state is BreakerState.CLOSED:
            self._calls, self._bad, self._extra = [0] * SLICES, [0] * SLICES, [0] * SLICES
            self._bad_at.clear()
        return Change(was, self._state, cause, reason, now)
