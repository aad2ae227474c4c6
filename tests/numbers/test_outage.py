"""M41 and M42: the default breaker by its numbers, and what it does to the tail of an outage downstream.

In virtual time, with the breaker itself: one worker takes a hundred calls a second to something that takes 50 ms, and for
a minute takes until the caller's timeout. Waiting for a free call counts. The yardstick is the 99th percentile of all who came
within that minute.
"""

import heapq
import itertools
from collections import deque

import pytest

from forebay.core.breaker import BreakerPolicy, BreakerState, Cause, CircuitBreaker, Ending, Permit
from forebay.declare.breaker import Breaker

RATE_PER_S, WELL_S = 100, 0.050
BEGINS, LASTS, UNTIL = 20.0, 60.0, 200.0
FALL = 0.60


def default_policy():
    return Breaker()._circuit.core.policy


def test_m41_half_of_the_calls_in_10_s_failed_or_slower_than_1_s_open_it_for_30_s_and_one_probes():
    policy = default_policy()
    assert policy == BreakerPolicy(
        failures=None, rate=0.5, window_s=10.0, calls_min=10, slow_s=1.0, open_s=30.0
    )
    breaker, changes = CircuitBreaker(policy), []
    for number in range(10):
        took_s, ending = [(0.05, Ending.GOOD), (1.01, Ending.GOOD), (0.05, Ending.GOOD), (0.05, Ending.BAD)][
            number % 4
        ]
        changes.append(breaker.ended(breaker.ask(now=5.0), ending, now=5.0, took_s=took_s))
    assert [change for change in changes if change][0].cause is Cause.RATE, (
        "five of ten, slow and failed alike"
    )
    assert not isinstance(breaker.ask(now=34.9), Permit) and breaker.state(now=35.0) is BreakerState.HALF_OPEN
    assert breaker.ask(now=35.0).probe and not isinstance(breaker.ask(now=35.0), Permit)


class Outage:
    """Plays it; `p99_s` is of those who came while it lasted, `called` how many of them met it."""

    def __init__(self, breaker, *, calls_max, timeout_s):
        self.breaker, self.timeout_s = breaker, timeout_s
        self.free, self.line, self.called = calls_max, deque(), 0
        self.latencies = []
        self._number = itertools.count()
        self._events = [(n / RATE_PER_S, next(self._number), None) for n in range(int(UNTIL * RATE_PER_S))]
        while self._events:
            now, _, call = heapq.heappop(self._events)
            if call is None:
                self.line.append(now)
            else:
                self._ended(call, now)
            self._start(now)
        self.latencies.sort()
        self.p99_s = self.latencies[int(0.99 * len(self.latencies))]

    def _start(self, now):
        while self.line and self.free:
            came_at, permit = self.line.popleft(), None
            if self.breaker is not None:
                permit = self.breaker.ask(now=now)
                if not isinstance(permit, Permit):
                    self._answered(came_at, now)  # by what stands in
                    continue
            out = BEGINS <= now < BEGINS + LASTS
            self.called += out
            self.free -= 1
            took_s = self.timeout_s if out else WELL_S
            heapq.heappush(self._events, (now + took_s, next(self._number), (came_at, permit, out, took_s)))

    def _ended(self, call, now):
        came_at, permit, out, took_s = call
        self.free += 1
        if permit is not None:
            self.breaker.ended(permit, Ending.BAD if out else Ending.GOOD, now=now, took_s=took_s)
        self._answered(came_at, now)

    def _answered(self, came_at, now):
        if BEGINS <= came_at < BEGINS + LASTS:
            self.latencies.append(now - came_at)


def fall_of(**world):
    """Return by what share the breaker lowers the 99th percentile."""
    without, guarded = Outage(None, **world), Outage(CircuitBreaker(default_policy()), **world)
    return 1.0 - guarded.p99_s / without.p99_s, without, guarded


@pytest.mark.parametrize("calls_max", [8, 64])
@pytest.mark.parametrize("timeout_s", [1.5, 5.0, 12.0])
def test_m42_the_tail_of_an_outage_falls_by_60_percent_at_the_99th_percentile(calls_max, timeout_s):
    fall, without, guarded = fall_of(calls_max=calls_max, timeout_s=timeout_s)
    assert fall >= FALL and guarded.p99_s <= max(10.0, timeout_s)
    assert guarded.latencies[len(guarded.latencies) // 2] == 0.0, (
        "most are answered at once by what stands in"
    )
    assert guarded.called <= 0.5 * without.called


def test_m42_does_not_hold_where_nobody_waits_for_a_free_call():
    """A thousand calls at once: the breaker opens after seven seconds, and by then more than one in a hundred of
    the minute had called. Their time is that of the timeout, with and without a breaker; the median falls. No rule that
    waits for a second before a call is slow can do better: one in a hundred of a minute is 0.6 s."""
    fall, without, guarded = fall_of(calls_max=1_000, timeout_s=5.0)
    assert [without.p99_s, guarded.p99_s] == pytest.approx([5.0, 5.0]) and fall == pytest.approx(0.0)
    assert guarded.latencies[len(guarded.latencies) // 2] == 0.0
    assert guarded.called <= 0.2 * without.called


class Oracle(CircuitBreaker):
    """Knows when the outage began, and opens so many seconds later: whatever rule could say so."""

    def __init__(self, after_s):
        super().__init__(default_policy())
        self.opens_at = BEGINS + after_s

    def ask(self, *, now):
        return None if self.opens_at <= now < BEGINS + LASTS else super().ask(now=now)

    def ended(self, permit, ending, *, now, took_s):
        return None


@pytest.mark.parametrize(("after_s", "falls"), [(0.5, True), (0.7, False), (1.1, False), (5.0, False)])
def test_m42_with_a_thousand_at_once_no_rule_can_hold_that_opens_later_than_six_tenths_of_a_second(
    after_s, falls
):
    """One in a hundred of the minute is 0.6 s of arrivals. Those who called by then are out until their timeout, and a
    call is slow after a second: a rule in time would have to open on calls that are not slow, at every pause."""
    without = Outage(None, calls_max=1_000, timeout_s=5.0)
    guarded = Outage(Oracle(after_s), calls_max=1_000, timeout_s=5.0)
    assert (guarded.p99_s <= (1.0 - FALL) * without.p99_s) is falls


@pytest.mark.parametrize("calls_max", [8, 64])
def test_m42_calls_that_hang_for_half_of_the_outage_cost_that_once_and_not_twice(calls_max):
    """A call says nothing before it ends: who came while the first ones hung has waited for them, thirty seconds.
    Then three of them are enough, and nobody waits for a second round."""
    fall, without, guarded = fall_of(calls_max=calls_max, timeout_s=30.0)
    assert fall >= 0.49 and guarded.p99_s <= 30.0 < 58.0 < without.p99_s
    assert guarded.latencies[len(guarded.latencies) // 2] < 0.1
    assert guarded.called <= 0.65 * without.called
