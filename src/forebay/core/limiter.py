"""ConcurrencyLimit: how many calls to have out at once, learned from how they end; AIMD and gradient."""

from dataclasses import dataclass
from math import sqrt
from typing import Final, NamedTuple

from forebay.core.breaker import Ending

RULES: Final = ("fixed", "aimd", "gradient")
USED_SHARE: Final = 0.8  # of the limit: a window that used less says nothing about more
SHRINK: Final = 0.7  # what an overload leaves of the limit
TOLERANCE: Final = 1.5  # latency may grow so much over the best before the limit shrinks
GRADIENT_LEAST: Final = 0.5  # of one step
SMOOTHING: Final = 0.5  # of a step towards what a window says
# The latency without a line at the server is measured anew now and then, at half the limit: a server that
# got slower for good is not taken for one with a line.
MEASURE_EVERY: Final = 25  # windows
MEASURE_WHEN_WORSE: Final = 5  # windows in a row that wanted less
MEASURE_SHARE: Final = 0.5  # of the limit meanwhile
WINDOW_CALLS: Final = 10  # a window is at least so many calls, and at least as many as the limit


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPolicy:
    """How a limit moves. `aimd`: one more for each round of good calls, SHRINK of it at an overload.
    `gradient`: the same at an overload, and with the latency: more while it stays near the best there was."""

    rule: str = "gradient"
    start: int = 8
    least: int = 1
    most: int = 256

    def __post_init__(self) -> None:
        assert self.rule in RULES
        assert 1 <= self.least <= self.start <= self.most


class Call(NamedTuple):
    """One call that is out. Give it back with `ConcurrencyLimit.ended`."""

    at: float
    period: int  # between two times that the limit shrank


class ConcurrencyLimit:
    """No clock inside, and nothing is started: `begun` and `ended` tell it, `limit` says how many may be."""

    __slots__ = (
        "_best_s", "_calls", "_left", "_level", "_measure_from", "_measuring", "_most_out", "_out", "_period",
        "_total_s", "_worse", "policy",
    )  # fmt: skip

    def __init__(self, policy: LimitPolicy) -> None:
        self.policy = policy
        self._level = float(policy.start)
        self._out = 0
        self._period = 0
        self._best_s: float | None = None  # mean latency of a window without a line at the server
        self._left = MEASURE_WHEN_WORSE  # windows until it is measured anew
        self._worse = 0  # windows in a row that wanted less
        self._measuring = False
        self._measure_from: float | None = None  # when no more calls were out than meanwhile may be
        self._calls = 0  # good ones of this window
        self._total_s = 0.0  # their latencies
        self._most_out = 0

    @property
    def limit(self) -> int:
        """How many calls may be out at once."""
        level = self._level * MEASURE_SHARE if self._measuring else self._level
        return max(self.policy.least, int(level))

    @property
    def out(self) -> int:
        """How many are."""
        return self._out

    def begun(self, *, now: float) -> Call:
        """Book a call that begins now; whether it may is the caller's to see (`out < limit`)."""
        self._out += 1
        self._most_out = max(self._most_out, self._out)
        return Call(now, self._period)

    def ended(self, call: Call, ending: Ending, *, now: float) -> None:
        """Take in how a call ended. BAD: what was called is overloaded; IGNORED: it says nothing of load."""
        self._out -= 1
        if self.policy.rule == "fixed":
            return
        if ending is Ending.BAD:
            self._shrink(call)
        elif ending is Ending.GOOD and (not self._measuring or self._measures(call, now)):
            self._calls += 1
            self._total_s += max(0.0, now - call.at)
            if self.policy.rule == "aimd":
                self._grow_by_one()
            elif self._calls >= max(WINDOW_CALLS, self.limit):
                self._follow_latency()

    def _shrink(self, call: Call) -> None:
        # One overload makes many calls fail: those that were out when it was heard of say nothing new.
        if call.period != self._period:
            return
        self._period += 1
        self._move(self._level * SHRINK)
        self._new_window()

    def _grow_by_one(self) -> None:
        if self._calls < self.limit:
            return
        if self._most_out >= USED_SHARE * self.limit:
            self._move(self._level + 1.0)
        self._new_window()

    def _follow_latency(self) -> None:
        mean_s = self._total_s / self._calls
        used = self._most_out >= USED_SHARE * self.limit
        self._new_window()
        if self._measuring:
            self._measuring = False
            self._best_s, self._left, self._worse = mean_s, MEASURE_EVERY, 0
            return
        best_s = mean_s if self._best_s is None else min(self._best_s, mean_s)
        self._best_s = best_s
        gradient = 1.0
        if mean_s > 0:
            gradient = min(1.0, max(GRADIENT_LEAST, TOLERANCE * best_s / mean_s))
        target = self._level * gradient + (sqrt(self._level) if used else 0.0)
        self._move(self._level + SMOOTHING * (target - self._level))
        self._left -= 1
        self._worse = self._worse + 1 if gradient < 1.0 else 0
        if used and (self._left <= 0 or self._worse >= MEASURE_WHEN_WORSE):
            self._measuring, self._measure_from = True, None

    def _measures(self, call: Call, now: float) -> bool:
        """Say whether a call met no others at the server but those that may be out while it is measured."""
        if self._measure_from is None and self._out < self.limit:
            self._measure_from = now
        return self._measure_from is not None and call.at >= self._measure_from

    def _move(self, level: float) -> None:
        self._level = min(float(self.policy.most), max(float(self.policy.least), level))

    def _new_window(self) -> None:
        self._calls, self._total_s, self._most_out = 0, 0.0, self._out
