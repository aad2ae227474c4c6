"""Arrivals in sliding seconds: what a basin is sized for, checked against counting by hand."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.arrivals import AGE_S, AGES_MAX, STEPS_PER_S, ArrivalWindows
from forebay.sim import arrivals
from forebay.sim.chance import Chance

T0 = 1_000.0


def fed(times, *, count=1):
    windows = ArrivalWindows()
    for at in times:
        windows.arrived(count, now=at)
    return windows


def counted(times, *, until):
    """Every sliding window in which something came, counted the slow way."""
    steps = Counter(int(at * STEPS_PER_S) for at in times)
    sums = (
        sum(steps[last - back] for back in range(STEPS_PER_S))
        for last in range(int(times[0] * STEPS_PER_S), int(until * STEPS_PER_S))
    )
    return sorted(total for total in sums if total)


def test_a_burst_between_two_scrapes_is_seen():
    windows = fed([T0 + 0.51])
    windows.arrived(400, now=T0 + 0.55)
    peaks = windows.peaks(now=T0 + 5)
    assert (peaks.p99_per_s, peaks.max_per_s, peaks.windows) == (401.0, 401.0, 10)


def test_a_steady_rate_is_its_own_p99():
    windows = fed(arrivals.steady(60.0, start=T0, until=T0 + 30))
    assert windows.peaks(now=T0 + 30).p99_per_s == pytest.approx(60.0, abs=1.0)
    assert windows.mean_per_s(now=T0 + 30) == pytest.approx(60.0, rel=0.02)


def test_the_p99_of_a_poisson_stream_lies_above_its_mean_by_what_theory_says():
    windows = fed(arrivals.poisson(Chance(5), 100.0, start=T0, until=T0 + 600))
    assert windows.peaks(now=T0 + 600).p99_per_s == pytest.approx(100 + 2.33 * 10, abs=4)


def test_silence_does_not_make_the_bursts_look_small():
    windows = ArrivalWindows()
    for burst in range(4):
        windows.arrived(400, now=T0 + burst * 300)
    assert windows.peaks(now=T0 + 1_200).p99_per_s == 400.0


def test_one_accident_in_an_hour_is_the_largest_but_not_the_p99():
    windows = fed(arrivals.steady(10.0, start=T0, until=T0 + 600))
    windows.arrived(5_000, now=T0 + 600)
    for at in arrivals.steady(10.0, start=T0 + 601, until=T0 + 1_200):
        windows.arrived(1, now=at)
    peaks = windows.peaks(now=T0 + 1_200)
    assert peaks.p99_per_s <= 12 and peaks.max_per_s >= 5_000


def test_after_an_hour_a_peak_is_forgotten():
    windows = fed([T0], count=1)
    windows.arrived(900, now=T0 + 1)
    windows.arrived(1, now=T0 + AGE_S * (AGES_MAX - 1))
    assert windows.peaks(now=T0 + AGE_S * (AGES_MAX - 1)).max_per_s == 900.0
    assert windows.peaks(now=T0 + AGE_S * (AGES_MAX + 1)).max_per_s <= 1.0
    assert windows.peaks(now=T0 + AGE_S * 100).windows == 0


def test_a_file_is_kept_from_end_to_end():
    windows = ArrivalWindows(keep=True)
    windows.arrived(900, now=T0)
    windows.arrived(1, now=T0 + AGE_S * 1_000)
    assert windows.peaks(now=T0 + AGE_S * 1_000 + 2).max_per_s == 900.0


def test_nothing_ever_came():
    windows = ArrivalWindows()
    assert windows.peaks(now=T0) == (0.0, 0.0, 0)
    assert windows.mean_per_s(now=T0) == 0.0


def test_the_mean_falls_to_nothing_ten_seconds_after_the_last():
    windows = fed([T0 + i / 10 for i in range(100)])
    assert windows.mean_per_s(now=T0 + 10.0) == pytest.approx(10.0, rel=0.02)
    assert windows.mean_per_s(now=T0 + 15.0) == pytest.approx(5.0, rel=0.05)
    assert windows.mean_per_s(now=T0 + 21.0) == 0.0


@given(st.lists(st.floats(0, 40), min_size=1, max_size=60))
def test_the_windows_are_those_counted_by_hand(offsets):
    times = sorted(T0 + offset for offset in offsets)
    windows, expected = fed(times), counted(times, until=T0 + 50)
    peaks = windows.peaks(now=T0 + 50)
    assert peaks.windows == len(expected)
    assert peaks.max_per_s == expected[-1]
    assert peaks.p99_per_s == expected[math.ceil(0.99 * len(expected)) - 1]


@given(st.lists(st.tuples(st.floats(0, 1e5), st.integers(1, 10**9)), max_size=60))
def test_memory_is_bounded_whatever_comes(arrived):
    windows, at = ArrivalWindows(), T0
    for gap, count in arrived:
        at += gap
        windows.arrived(count, now=at)
    windows.peaks(now=at + 2)
    assert len(windows._ages) <= AGES_MAX and len(windows._steps) == 100


def test_a_clock_that_stands_still_or_steps_back_loses_nothing():
    windows = ArrivalWindows()
    for at in (T0, T0, T0 - 5, T0):
        windows.arrived(1, now=at)
    assert windows.peaks(now=T0 + 3).max_per_s == 4.0
