"""Targets against looks at metrics: what is taken, what counts when there are many series, and what fails."""

import math

import pytest

from forebay.core.verifying import Look, Target, increases, judge, judge_times, quantile_of

A, B = (("task", "A"),), (("task", "B"),)


def looks(*series, of=None):
    of = of or [{}] * len(series)
    return [Look(float(at), one, whole) for at, (one, whole) in enumerate(zip(series, of, strict=True))]


@pytest.mark.parametrize(("take", "value"), [("max", 9.0), ("min", 1.0), ("mean", 5.0), ("last", 5.0)])
def test_a_gauge_is_taken_over_all_looks(take, value):
    verdict = judge(Target("x", take, "m", below=10), looks({A: 1.0}, {A: 9.0}, {A: 5.0}))
    assert (verdict.value, verdict.met) == (value, True)


def test_of_many_gauges_the_worst_counts_and_is_named():
    verdict = judge(Target("x", "max", "m", below=10), looks({A: 1.0, B: 20.0}, {A: 2.0, B: 1.0}))
    assert (verdict.value, verdict.met, verdict.worst) == (20.0, False, "task=B")
    verdict = judge(Target("x", "min", "m", least=0.85, most=0.95), looks({A: 0.9, B: 0.5}))
    assert (verdict.value, verdict.met, verdict.worst) == (0.5, False, "task=B")
    verdict = judge(Target("x", "mean", "m", least=0.85, most=0.95), looks({A: 0.9, B: 0.99}))
    assert (verdict.value, verdict.met, verdict.worst) == (0.99, False, "task=B")


def test_counters_are_summed_and_one_that_falls_began_anew():
    assert increases([{A: 5.0}, {A: 7.0, B: 2.0}, {A: 1.0, B: 2.0}]) == {A: 3.0, B: 2.0}
    assert judge(Target("x", "increase", "m", most=5), looks({A: 5.0}, {A: 7.0, B: 3.0})).met
    assert not judge(Target("x", "increase", "m", most=4), looks({A: 5.0}, {A: 7.0, B: 3.0})).met
    assert judge(Target("x", "per_s", "m", most=3), looks({A: 0.0}, {}, {A: 6.0})).value == 3.0


def test_m17_2_of_3000_frames_lost_is_less_than_one_in_a_thousand():
    verdict = judge(
        Target("x", "share", "m", of="n", below=0.001), looks({A: 0.0}, {A: 2.0}, of=[{A: 0.0}, {A: 3000.0}])
    )
    assert verdict.met and math.isclose(verdict.value, 2 / 3000)
    assert not judge(Target("x", "share", "m", of="n", below=1), looks({A: 0.0}, {A: 0.0})).met  # of nothing


def test_a_quantile_is_of_what_was_counted_meanwhile():
    def at(*counts):
        ends = ("0.01", "0.045", "0.1", "+Inf")
        return {(("le", end),): float(count) for end, count in zip(ends, counts, strict=True)}

    before = at(1000, 1000, 1000, 1000)  # long ago, and fast
    verdict = judge(Target("x", "p95", "m", most=0.045), looks(before, at(1000, 1095, 1100, 1100)))
    assert verdict.met and math.isclose(verdict.value, 0.045)
    assert not judge(Target("x", "p95", "m", most=0.045), looks(before, at(1000, 1050, 1100, 1100))).met
    assert judge(Target("x", "p95", "m", most=0.045), looks(before, before)).value is None


@pytest.mark.parametrize(
    ("buckets", "quantile", "value"),
    [
        ({1.0: 10.0, 2.0: 20.0, math.inf: 20.0}, 0.5, 1.0),
        ({1.0: 10.0, 2.0: 20.0, math.inf: 20.0}, 0.75, 1.5),
        ({1.0: 0.0, math.inf: 5.0}, 0.5, 1.0),  # beyond the last end nothing is known
        ({1.0: 0.0, math.inf: 0.0}, 0.5, None),
        ({}, 0.5, None),
    ],
)
def test_a_quantile_is_interpolated_within_its_bucket(buckets, quantile, value):
    assert quantile_of(buckets, quantile) == value


def test_what_was_never_seen_is_not_met_unless_its_absence_has_a_value():
    assert not judge(Target("x", "max", "m", below=250), looks({}, {})).met
    verdict = judge(Target("x", "increase", "m", most=0, absent=0.0), looks({}, {}))
    assert (verdict.value, verdict.met) == (0.0, True)
    verdict = judge(Target("x", "increase", "m", most=0, absent=0.0), looks({}, {A: 1.0}))
    assert (verdict.value, verdict.met) == (1.0, False)


def test_times_of_requests_are_judged_by_rank_and_one_that_was_not_good_never_ended():
    target = Target("x", "p95", probe="A", below=0.2)
    assert judge_times(target, [0.1] * 95 + [math.inf] * 5).met
    assert not judge_times(target, [0.1] * 94 + [math.inf] * 6).met
    assert not judge_times(target, []).met
    assert judge_times(Target("x", "mean", probe="A", below=0.2), [0.1, 0.2]).met


def test_a_value_that_is_no_number_is_within_no_bound():
    assert not judge(Target("x", "last", "m", least=-math.inf), looks({A: math.nan})).met


def test_the_bounds_are_told_as_text():
    assert Target("x", "max", least=0.85, most=0.95).wanted == ">= 0.85 and <= 0.95"
