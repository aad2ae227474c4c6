"""Loads: when requests are due, and the report of what became of them."""

import random

import pytest

from forebay.core.loading import (
    CUT,
    GAVE_UP,
    REQUESTS_MAX,
    UNREACHED,
    Shape,
    Shot,
    quantiles,
    report,
    schedule,
)


def due(shape, seed=1):
    return schedule(shape, random.Random(seed).random)


def test_steady_gaps_are_equal():
    assert due(Shape("steady", rate_per_s=10.0, for_s=1.0)) == pytest.approx([n / 10 for n in range(10)])


def test_m22_a_burst_of_1200_is_there_at_once_and_comes_again_when_asked():
    assert due(Shape("burst", burst=1200)) == [0.0] * 1200
    again = due(Shape("burst", burst=3, every_s=2.0, for_s=5.0))
    assert again == [0.0] * 3 + [2.0] * 3 + [4.0] * 3


@pytest.mark.parametrize(
    ("profile", "first", "middle"), [("poisson", 1.0, 1.0), ("ramp", 0.05, 0.5), ("spike", 1.0, 10.0)]
)
def test_arrivals_come_at_the_rate_of_their_profile(profile, first, middle):
    times = due(Shape(profile, rate_per_s=500.0, for_s=20.0))
    assert times == sorted(times) and 0 <= times[0] and times[-1] < 20.0

    def rate(start, end):
        return sum(start <= at < end for at in times) / (end - start) / 500.0

    assert rate(0.0, 2.0) == pytest.approx(first, rel=0.25)
    assert rate(9.0, 11.0) == pytest.approx(middle, rel=0.15)


def test_the_same_seed_is_the_same_arrivals():
    shape = Shape("poisson", rate_per_s=50.0, for_s=3.0)
    assert due(shape) == due(shape) != due(shape, seed=2)


def test_more_than_can_be_kept_is_refused_before_it_is_made():
    with pytest.raises(ValueError, match="more than"):
        due(Shape("poisson", rate_per_s=REQUESTS_MAX, for_s=10.0))
    with pytest.raises(ValueError, match="none of"):
        due(Shape("wave", rate_per_s=1.0, for_s=1.0))


def test_latency_counts_from_when_it_was_due_and_good_is_in_time_and_below_300():
    shots = [
        Shot(0.0, 0.0, 0.1, 200), Shot(1.0, 1.5, 1.6, 200), Shot(2.0, 2.0, 2.01, 429), Shot(3.0, 3.0, 3.1, 500),
        Shot(4.0, 4.0, 14.0, GAVE_UP), Shot(5.0, 5.0, 5.0, UNREACHED), Shot(6.0, 6.0, 6.1, CUT),
    ]  # fmt: skip
    told = report(shots, deadline_s=0.2, for_s=10.0)
    assert (told.due, told.answered, told.good) == (7, 4, 1)
    assert told.goodput_per_s == pytest.approx(0.1) and told.offered_per_s == pytest.approx(0.7)
    assert told.by_status == {"200": 2, "429": 1, "500": 1, "cut off": 1, "gave up": 1, "not reached": 1}
    assert told.good_s["max"] == pytest.approx(0.1) and told.refused_s["p50"] == pytest.approx(0.01)
    assert told.lag_s == pytest.approx(0.5) and told.generator_lags
    assert report(shots, deadline_s=None, for_s=10.0).good == 2


def test_quantiles_are_values_that_were_seen():
    told = quantiles([n / 1000 for n in range(1, 1001)])
    assert told == {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    assert quantiles([]) == {}
