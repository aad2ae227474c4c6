"""A concurrency limit finds what a server can take, by overloads or by latency, and follows it when it changes."""

import heapq
import itertools
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core.breaker import Ending
from forebay.core.limiter import SHRINK, ConcurrencyLimit, LimitPolicy

GOOD, BAD, IGNORED = Ending.GOOD, Ending.BAD, Ending.IGNORED


clock = itertools.count(0.0, 10.0)


def round_of(limit, took_s, ending=GOOD, calls=None):
    """As many calls at once as the limit allows, all ending alike; each round later than the last."""
    at = next(clock)
    out = [limit.begun(now=at) for _ in range(calls or limit.limit)]
    for call in out:
        limit.ended(call, ending, now=at + took_s)


def test_aimd_grows_by_one_for_each_full_round_and_shrinks_at_an_overload():
    limit = ConcurrencyLimit(LimitPolicy(rule="aimd", start=4, most=6))
    seen = []
    for ending in (GOOD, GOOD, GOOD, BAD, BAD, BAD, BAD, BAD, BAD, GOOD, IGNORED):
        round_of(limit, 0.1, ending)
        seen.append(limit.limit)
    assert seen == [5, 6, 6, 4, 2, 2, 1, 1, 1, 2, 2]


def test_one_overload_shrinks_it_once_however_many_calls_it_fails():
    limit = ConcurrencyLimit(LimitPolicy(rule="aimd", start=100))
    out = [limit.begun(now=0.0) for _ in range(100)]
    for call in out:
        limit.ended(call, BAD, now=1.0)
    assert limit.limit == int(100 * SHRINK)


def test_what_is_not_used_does_not_grow():
    for rule in ("aimd", "gradient"):
        limit = ConcurrencyLimit(LimitPolicy(rule=rule, start=8))
        for _ in range(200):
            round_of(limit, 0.1, calls=3)
        assert limit.limit == 8


def test_the_gradient_grows_while_latency_stays_and_shrinks_when_it_grows():
    limit = ConcurrencyLimit(LimitPolicy(start=8))
    for _ in range(20):
        round_of(limit, 0.1)
    grown = limit.limit
    assert grown > 16
    for _ in range(6):
        round_of(limit, 1.0)
    assert limit.limit < grown / 2


def test_errors_that_say_nothing_of_load_move_nothing():
    limit = ConcurrencyLimit(LimitPolicy(start=8))
    for _ in range(100):
        round_of(limit, 9.0, IGNORED)
    assert (limit.limit, limit.out) == (8, 0)


def test_a_fixed_limit_stays():
    limit = ConcurrencyLimit(LimitPolicy(rule="fixed", start=5))
    for ending in (BAD, GOOD, BAD):
        round_of(limit, 5.0, ending)
    assert limit.limit == 5


class Server:
    """`slots` calls at once, each `each_s`; the others stand in line."""

    def __init__(self, slots, each_s):
        self.slots, self.each_s = slots, each_s
        self.free_at = [0.0] * slots

    def call(self, now):
        """Return (when it is answered, ending)."""
        start = max(now, heapq.heappop(self.free_at))
        heapq.heappush(self.free_at, start + self.each_s)
        return start + self.each_s, GOOD

    def become(self, slots, each_s):
        more = [max(self.free_at)] * (slots - len(self.free_at))
        self.free_at = sorted(self.free_at, reverse=True)[:slots] + more
        heapq.heapify(self.free_at)
        self.slots, self.each_s = slots, each_s


class Ended(NamedTuple):
    at: float
    ending: Ending
    limit: int  # then


def drive(limit, server, until, changes=()):
    """Keep as many calls out as the limit allows; returns every end."""
    now, out, ends, changes = 0.0, [], [], list(changes)
    number = 0
    while now < until:
        while limit.out < limit.limit:
            at, ending = server.call(now)
            number += 1
            heapq.heappush(out, (at, number, ending, limit.begun(now=now)))
        at, _, ending, call = heapq.heappop(out)
        now = max(now, at)
        limit.ended(call, ending, now=now)
        ends.append(Ended(now, ending, limit.limit))
        while changes and now >= changes[0][0]:
            server.become(*changes.pop(0)[1:])
    return ends


def goodput(ends, since, until):
    return sum(1 for end in ends if end.ending is GOOD and since <= end.at < until) / (until - since)


@settings(max_examples=12)
@given(st.integers(1, 40), st.integers(1, 64))
def test_by_latency_it_keeps_a_server_busy_without_a_long_line_at_it(slots, start):
    limit = ConcurrencyLimit(LimitPolicy(start=start))
    until = max(30.0, 1000.0 / slots)  # at least 10,000 calls
    ends = drive(limit, Server(slots, 0.1), until)
    assert goodput(ends, until - 10.0, until) >= 0.95 * slots / 0.1
    # It swings: what counts is the highest of its swings, not where one of them stands at the end.
    assert max(end.limit for end in ends if end.at >= until * 2 / 3) <= 2 * slots + 16


@settings(max_examples=8)
@given(st.integers(8, 40), st.booleans())
def test_by_latency_it_follows_a_server_that_loses_half_and_gets_it_back(slots, slower):
    """Half of its slots are gone, or each call takes twice as long."""
    limit = ConcurrencyLimit(LimitPolicy(start=8))
    worse = (15.0, slots, 0.2) if slower else (15.0, slots // 2, 0.1)
    ends = drive(limit, Server(slots, 0.1), until=45.0, changes=[worse, (30.0, slots, 0.1)])
    assert goodput(ends, 25.0, 30.0) >= 0.95 * worse[1] / worse[2]
    assert goodput(ends, 40.0, 45.0) >= 0.95 * slots / 0.1
    assert limit.limit <= 3 * slots + 12


@pytest.mark.parametrize("rule", ["aimd", "gradient"])
def test_by_refusals_alone_it_settles_around_what_the_server_takes(rule):
    class Refusing(Server):
        def call(self, now):
            busy = sum(1 for at in self.free_at if at > now)
            if busy >= self.slots:
                return now + 0.001, BAD
            return super().call(now)

    limit = ConcurrencyLimit(LimitPolicy(rule=rule, start=64))
    ends = drive(limit, Refusing(20, 0.1), until=30.0)
    late = [end.ending for end in ends if end.at > 10.0]
    assert goodput(ends, 10.0, 30.0) >= 0.75 * 200
    assert late.count(BAD) <= 0.1 * len(late)


calls = st.lists(
    st.tuples(st.booleans(), st.sampled_from([GOOD, BAD, IGNORED]), st.floats(0.0, 3.0)), max_size=200
)


@given(
    st.sampled_from(["aimd", "gradient", "fixed"]),
    st.integers(1, 5),
    st.integers(0, 20),
    st.integers(0, 40),
    calls,
)
def test_it_never_leaves_its_bounds_and_counts_what_is_out(rule, least, more, most, moves):
    policy = LimitPolicy(rule=rule, least=least, start=least + more, most=least + more + most)
    limit, out, now = ConcurrencyLimit(policy), [], 0.0
    for begins, ending, wait_s in moves:
        now += wait_s
        if begins or not out:
            out.append(limit.begun(now=now))
        else:
            limit.ended(out.pop(0), ending, now=now)
        assert policy.least <= limit.limit <= policy.most
        assert limit.out == len(out)
