"""Codel: when a queue stands, and how fast it is relieved, by the vectors of RFC 8289."""

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.codel import RESUMED_INTERVALS, Codel

TARGET_S, INTERVAL_S = 0.005, 0.1


def drops_at(codel, waits, *, few=False):
    """Return the instants of `waits`, pairs (now, wait), at which one is dropped; each asks until none is."""
    dropped = []
    for now, wait_s in waits:
        while codel.drops(wait_s, few=few, target_s=TARGET_S, interval_s=INTERVAL_S, now=now):
            dropped.append(now)
    return dropped


def steady(start, until, wait_s, step_s=0.001):
    return [(start + n * step_s, wait_s) for n in range(round((until - start) / step_s))]


def test_the_control_law_of_rfc_8289_an_interval_by_the_root_of_the_count():
    dropped = drops_at(Codel(), steady(0.0, 0.5, 0.020))
    expected, at = [0.100], 0.100 + INTERVAL_S
    for count in range(2, 9):
        expected.append(at)
        at += INTERVAL_S / sqrt(count)
    assert expected[1:5] == pytest.approx([0.2, 0.2707, 0.3284, 0.3784], abs=1e-4)
    assert dropped[:6] == pytest.approx(expected[:6], abs=0.001)


def test_a_burst_that_has_gone_within_an_interval_costs_nobody():
    codel = Codel()
    assert not drops_at(codel, steady(0.0, 0.099, 5.0))
    assert not drops_at(codel, [(0.099, 0.001)]), "one short wait shows that the queue moves"
    assert not drops_at(codel, steady(0.100, 0.198, 5.0))
    assert not codel.standing


def test_one_wait_below_the_target_ends_it():
    codel = Codel()
    assert drops_at(codel, steady(0.0, 0.3, 0.020)) and codel.standing
    assert not drops_at(codel, [(0.3, 0.0049)]) and not codel.standing
    assert not drops_at(codel, steady(0.301, 0.400, 0.020)), "it takes an interval to stand again"


def test_an_overload_that_comes_back_soon_goes_on_at_the_pace_it_had():
    codel = Codel()
    before = drops_at(codel, steady(0.0, 2.0, 0.020))
    drops_at(codel, [(2.0, 0.0)])
    again = drops_at(codel, steady(2.001, 2.4, 0.020))
    assert again[1] - again[0] <= INTERVAL_S / sqrt(len(before) - 2) + 0.001
    late = Codel()
    drops_at(late, steady(0.0, 2.0, 0.020))
    drops_at(late, [(2.0, 0.0)])
    after_s = 2.1 + RESUMED_INTERVALS * INTERVAL_S
    anew = drops_at(late, steady(after_s, after_s + 0.4, 0.020))
    assert anew[1] - anew[0] == pytest.approx(INTERVAL_S, abs=0.002)


def test_what_goes_into_one_run_is_never_dropped():
    codel = Codel()
    assert not drops_at(codel, steady(0.0, 1.0, 5.0), few=True) and not codel.standing


@given(st.lists(st.tuples(st.floats(0.0001, 0.05), st.floats(0, 0.02), st.booleans()), max_size=200))
def test_nobody_is_dropped_before_every_wait_was_too_long_for_an_interval(steps):
    codel, now, moved_at = Codel(), 0.0, 0.0
    for step_s, wait_s, few in steps:
        now += step_s
        if wait_s < TARGET_S or few:
            moved_at = now
        for _ in range(500):  # it comes to rest: each drop puts the next one off
            if not codel.drops(wait_s, few=few, target_s=TARGET_S, interval_s=INTERVAL_S, now=now):
                break
            assert now - moved_at >= INTERVAL_S
        else:
            raise AssertionError("it never stops")


@given(st.floats(0.006, 10.0), st.integers(1, 50))
def test_the_pace_grows_with_time_alone_whatever_the_wait_is(wait_s, tenths):
    until = tenths / 10
    assert drops_at(Codel(), steady(0.0, until, wait_s)) == drops_at(Codel(), steady(0.0, until, 0.02))
