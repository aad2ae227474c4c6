"""A breaker opens for its reasons alone, lets one probe through at a time, and never stays shut for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.breaker import (
    CHANGES,
    FOLLOW_S,
    PROBE_WAIT_S,
    SLICES,
    BreakerPolicy,
    BreakerState,
    Cause,
    CircuitBreaker,
    Ending,
    Permit,
    Refused,
)

CLOSED, OPEN, HALF = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
GOOD, BAD, IGNORED = Ending.GOOD, Ending.BAD, Ending.IGNORED
HALF_OF_TEN = BreakerPolicy(rate=0.5, window_s=10.0, calls_min=10, slow_s=1.0, open_s=30.0)
THREE_IN_FIVE = BreakerPolicy(failures=3, rate=None, window_s=5.0, open_s=30.0)


def call(breaker, at, ending, took_s=0.0):
    """One call that begins at `at`; returns what changed when it ended."""
    permit = breaker.ask(now=at)
    assert isinstance(permit, Permit), permit
    return breaker.ended(permit, ending, now=at + took_s)


def opened(policy=THREE_IN_FIVE, at=0.0):
    breaker = CircuitBreaker(policy)
    for step in range(100):
        if call(breaker, at + step * 0.01, BAD) is not None:
            return breaker
    raise AssertionError("it never opened")


# (policy, calls as (at, ending, took_s), cause of the change at the last call or None)
VECTORS = [
    (HALF_OF_TEN, [(i * 0.1, BAD if i < 5 else GOOD, 0.0) for i in range(10)], None),  # a good call opens nothing
    (HALF_OF_TEN, [(i * 0.1, GOOD if i < 5 else BAD, 0.0) for i in range(10)], Cause.RATE),  # 5 of 10
    (HALF_OF_TEN, [(i * 0.1, GOOD if i < 6 else BAD, 0.0) for i in range(10)], None),  # 4 of 10
    (HALF_OF_TEN, [(i * 0.1, BAD, 0.0) for i in range(9)], None),  # too few calls to say
    (HALF_OF_TEN, [(i * 0.1, GOOD, 1.01 if i % 2 else 0.2) for i in range(10)], Cause.RATE),  # slow ones count
    (HALF_OF_TEN, [(i * 0.1, GOOD, 1.0) for i in range(10)], None),  # 1 s is not more than 1 s
    (HALF_OF_TEN, [(i * 2.0, BAD, 0.0) for i in range(20)], None),  # spread out: never ten in 10 s
    (HALF_OF_TEN, [*((i * 0.1, BAD, 0.0) for i in range(9)), (20.0, BAD, 0.0)], None),  # the old ones left
    (HALF_OF_TEN, [*((i * 0.1, IGNORED, 0.0) for i in range(50)), (6.0, BAD, 0.0)], None),
    (HALF_OF_TEN, [(i * 0.1, BAD, 30.0) for i in range(3)], Cause.RATE),  # three that hung are enough
    (HALF_OF_TEN, [(i * 0.1, BAD, 2.5) for i in range(5)], Cause.RATE),  # five that hung for two slow ones
    (HALF_OF_TEN, [(i * 0.1, BAD, 1.9) for i in range(9)], None),
    (HALF_OF_TEN, [(i * 0.1, GOOD, 30.0) for i in range(9)], None),  # slow, but no failures
    (HALF_OF_TEN, [*((29.0, GOOD, 0.5) for _ in range(4)), *((1.0, BAD, 29.0) for _ in range(3))], None),  # 3 of 7
    (HALF_OF_TEN, [(0.0, BAD, 30.0), (20.0, BAD, 30.0), (40.0, BAD, 30.0)], None),  # one in 20 s
    (THREE_IN_FIVE, [(0.0, BAD, 0.0), (2.5, BAD, 0.0), (5.0, BAD, 0.0)], Cause.FAILURES),
    (THREE_IN_FIVE, [(0.0, BAD, 0.0), (2.5, BAD, 0.0), (5.01, BAD, 0.0)], None),
    (THREE_IN_FIVE, [(0.0, BAD, 0.0), (1.0, GOOD, 0.0), (2.0, BAD, 0.0), (3.0, BAD, 0.0)], Cause.FAILURES),
    (THREE_IN_FIVE, [(0.0, BAD, 0.0), (1.0, IGNORED, 0.0), (2.0, BAD, 0.0)], None),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "calls", "cause"), VECTORS)
def test_it_opens_for_its_reasons_and_for_nothing_else(policy, calls, cause):
    breaker = CircuitBreaker(policy)
    changes = [call(breaker, at, ending, took_s) for at, ending, took_s in calls]
    assert changes[:-1] == [None] * (len(calls) - 1)
    assert (changes[-1] and changes[-1].cause) == cause
    assert breaker.state(now=calls[-1][0] + calls[-1][2]) is (OPEN if cause else CLOSED)
    assert breaker.trips == (1 if cause else 0)


def test_it_stays_open_for_thirty_seconds_then_lets_one_probe_through():
    breaker = opened()
    at = breaker.open_until - 30.0
    assert breaker.ask(now=at + 10.0) == Refused(20.0)
    assert breaker.state(now=at + 29.99) is OPEN
    assert breaker.state(now=at + 30.0) is HALF
    probe = breaker.ask(now=at + 30.0)
    assert probe.probe
    assert (probe.change.was, probe.change.state, probe.change.cause) == (OPEN, HALF, Cause.PROBE)
    assert breaker.ask(now=at + 30.1) == Refused(PROBE_WAIT_S)
    closed = breaker.ended(probe, GOOD, now=at + 30.2)
    assert (closed.state, closed.cause) == (CLOSED, Cause.RECOVERED)
    assert not breaker.ask(now=at + 30.3).probe
    assert breaker.trips == 1


def test_a_bad_or_slow_probe_opens_it_again_for_as_long():
    for ending, took_s in ((BAD, 0.1), (GOOD, 1.5)):
        breaker = opened(HALF_OF_TEN)
        probe = breaker.ask(now=100.0)
        change = breaker.ended(probe, ending, now=100.0 + took_s)
        assert (change.state, change.cause) == (OPEN, Cause.PROBE_BAD)
        assert breaker.open_until == 100.0 + took_s + 30.0
        assert breaker.trips == 1  # it never closed in between


def test_a_probe_that_says_nothing_frees_its_place():
    breaker = opened()
    probe = breaker.ask(now=100.0)
    assert breaker.ended(probe, IGNORED, now=100.1) is None
    assert breaker.state(now=100.1) is HALF
    assert breaker.ask(now=100.2).probe


def test_a_probe_that_never_ends_is_given_up_and_its_late_answer_says_nothing():
    breaker = opened()
    lost = breaker.ask(now=100.0)
    assert isinstance(breaker.ask(now=159.9), Refused)
    second = breaker.ask(now=160.0)
    assert second.probe
    assert breaker.ended(lost, BAD, now=161.0) is None
    assert breaker.state(now=161.0) is HALF
    assert breaker.ended(second, GOOD, now=162.0).state is CLOSED


def test_what_began_before_the_breaker_opened_says_nothing_after_it():
    breaker = CircuitBreaker(THREE_IN_FIVE)
    early = [breaker.ask(now=0.0) for _ in range(6)]
    changes = [breaker.ended(permit, BAD, now=0.1) for permit in early[:3]]
    assert changes[2].state is OPEN
    until = breaker.open_until
    probe = breaker.ask(now=until)
    assert breaker.ended(early[3], BAD, now=until + 0.1) is None  # not taken for the probe's
    assert breaker.ended(early[4], GOOD, now=until + 0.1) is None
    assert breaker.state(now=until + 0.2) is HALF
    breaker.ended(probe, GOOD, now=until + 0.3)
    assert breaker.ended(early[5], BAD, now=until + 0.4) is None


def test_it_forgets_the_bad_calls_of_before_when_it_closes():
    breaker = opened()
    breaker.ended(breaker.ask(now=100.0), GOOD, now=100.1)
    assert call(breaker, 100.2, BAD) is None
    assert call(breaker, 100.3, BAD) is None
    assert call(breaker, 100.4, BAD).cause is Cause.FAILURES
    assert breaker.trips == 2


def test_a_change_says_why_in_words():
    breaker = CircuitBreaker(HALF_OF_TEN)
    changes = [call(breaker, i * 0.1, GOOD if i < 5 else BAD) for i in range(10)]
    assert changes[-1].reason == breaker.reason == "5 of 10 calls bad within 10 s (rate 0.5)"


def test_what_is_told_to_be_open_opens_without_a_trip_and_probes_after_who_found_it_out():
    breaker = CircuitBreaker(THREE_IN_FIVE)
    change = breaker.told(OPEN, wait_s=20.0, reason="3 bad calls within 5 s", now=100.0)
    assert (change.state, change.cause, breaker.trips) == (OPEN, Cause.TOLD_BAD, 0)
    assert FOLLOW_S > 0
    assert breaker.ask(now=119.0).retry_after_s == pytest.approx(1.0 + FOLLOW_S)
    assert breaker.told(OPEN, wait_s=30.0, reason="the probe failed", now=120.0) is None
    assert breaker.retry_after_s(now=120.0) == 30.0 + FOLLOW_S, "it was tried elsewhere meanwhile"
    change = breaker.told(CLOSED, wait_s=0.0, reason="the probe went well", now=130.0)
    assert (change.state, change.cause) == (CLOSED, Cause.TOLD_WELL)
    assert isinstance(breaker.ask(now=130.0), Permit)
    assert breaker.told(CLOSED, wait_s=0.0, reason="the probe went well", now=131.0) is None


def test_what_is_told_is_bounded_by_the_own_limits_and_ends_a_probe_that_is_out():
    breaker = opened()
    probe = breaker.ask(now=31.0)
    assert probe.probe
    breaker.told(OPEN, wait_s=1e9, reason="the probe failed", now=32.0)
    assert breaker.ended(probe, GOOD, now=33.0) is None
    assert breaker.open_until == 32.0 + THREE_IN_FIVE.open_s + FOLLOW_S


steps = st.lists(
    st.tuples(
        st.floats(0.0, 20.0),
        st.sampled_from(["ask", "good", "bad", "ignored", "open", "closed"]),
        st.integers(0, 9),
    ),
    max_size=120,
)
policies = st.sampled_from(
    [
        HALF_OF_TEN,
        THREE_IN_FIVE,
        BreakerPolicy(
            failures=2, rate=0.3, calls_min=3, window_s=1.0, open_s=4.0, slow_s=0.5, probe_max_s=7.0
        ),
    ]
)


@given(policies, steps)
def test_whatever_happens_one_probe_at_a_time_and_only_changes_of_the_table(policy, moves):
    breaker, now = CircuitBreaker(policy), 0.0
    out, state, probe_until = [], CLOSED, None
    for wait_s, what, which in moves:
        now += wait_s
        change = None
        if what in {"open", "closed"}:
            change = breaker.told(BreakerState(what), wait_s=float(which), reason="elsewhere", now=now)
            if change is not None:
                probe_until = None
        elif what == "ask":
            permit = breaker.ask(now=now)
            if isinstance(permit, Refused):
                assert state is not CLOSED
                assert permit.retry_after_s > 0
                continue
            change = permit.change
            if permit.probe:
                assert probe_until is None or now >= probe_until, "two probes at once"
                probe_until = now + policy.probe_max_s
            else:
                assert state is CLOSED
            out.append(permit)
        elif out:
            permit = out.pop(which % len(out))
            change = breaker.ended(permit, Ending(what), now=now)
            if permit.probe and (probe_until is None or permit.at + policy.probe_max_s == probe_until):
                probe_until = None
        if change is not None:
            assert change.was is state
            assert CHANGES[state][change.cause] is change.state
            state = change.state


@given(policies, steps)
def test_who_waits_as_long_as_told_gets_through_once_nobody_else_calls(policy, moves):
    breaker, now = CircuitBreaker(policy), 0.0
    for wait_s, what, _ in moves:
        now += wait_s
        if what in {"open", "closed"}:
            breaker.told(BreakerState(what), wait_s=9.0, reason="elsewhere", now=now)
            continue
        permit = breaker.ask(now=now)
        if isinstance(permit, Permit) and what != "ask":
            breaker.ended(permit, Ending(what), now=now)
    for _ in range(2 + int(policy.probe_max_s / PROBE_WAIT_S)):
        answer = breaker.ask(now=now)
        if isinstance(answer, Permit):
            return
        now += answer.retry_after_s
    raise AssertionError("it never lets anybody through again")


@given(st.lists(st.tuples(st.floats(0.0, 4.0), st.booleans()), max_size=80))
def test_the_window_counts_what_a_list_of_all_calls_would_but_for_its_last_slice(calls):
    policy = BreakerPolicy(rate=0.5, window_s=10.0, calls_min=4, open_s=1e9)
    breaker, now, seen = CircuitBreaker(policy), 0.0, []
    for wait_s, bad in calls:
        now += wait_s
        seen.append((now, bad))
        change = call(breaker, now, BAD if bad else GOOD)

        def tripped(window_s, now=now, bad=bad):
            ends = [was_bad for at, was_bad in seen if now - at < window_s]
            return bad and len(ends) >= 4 and sum(ends) >= 0.5 * len(ends)

        slice_s = policy.window_s / SLICES
        cuts = [policy.window_s - slice_s * share / 8 for share in range(9)]
        if change is None:
            assert not all(tripped(cut) for cut in cuts)
        else:
            assert any(tripped(cut) for cut in cuts)
            return
