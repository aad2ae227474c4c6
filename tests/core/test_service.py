"""The fit finds `fixed + n * each`, and follows when the model changes its speed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.service import MISS_MOST, SPREAD_GAIN, ServiceFit


def fitted(runs):
    fit = ServiceFit()
    for items, took_s in runs:
        fit.observe(items, took_s)
    return fit


def test_nothing_is_known_before_the_first_run():
    assert ServiceFit().run_s(1) is None


@pytest.mark.parametrize(("fixed", "each"), [(0.02, 0.002), (0.0, 0.01), (0.5, 0.0), (0.001, 0.1)])
def test_it_finds_the_line_from_runs_of_several_sizes(fixed, each):
    fit = fitted([(n, fixed + each * n) for _ in range(30) for n in (1, 4, 16)])
    for n in (1, 2, 8, 16, 32):
        assert fit.run_s(n) == pytest.approx(fixed + each * n, rel=0.05, abs=1e-4)
    assert fit.deviation_s < 0.1 * (fixed + each * 16) + 1e-4


def test_with_runs_of_one_size_a_run_is_proportional_to_its_items():
    fit = fitted([(8, 0.4)] * 10)
    assert fit.run_s(8) == pytest.approx(0.4)
    assert fit.run_s(4) == pytest.approx(0.2)
    assert fit.run_s(16) == pytest.approx(0.8)


def test_it_follows_a_model_that_slows_down():
    fit = fitted([(n, 0.02 + 0.002 * n) for _ in range(50) for n in (1, 16)])
    for _ in range(60):
        for n in (1, 16):
            fit.observe(n, 2 * (0.02 + 0.002 * n))
    assert fit.run_s(16) == pytest.approx(0.104, rel=0.1)


def test_an_hour_of_full_batches_does_not_make_single_items_forgotten():
    fit = fitted([(1, 0.022)] * 10 + [(16, 0.052)] * 10_000)
    assert fit.run_s(1) == pytest.approx(0.022, rel=0.02)
    assert fit.run_s(16) == pytest.approx(0.052, rel=0.02)


def test_a_model_that_slows_down_meanwhile_is_followed_all_the_same():
    fit = fitted([(1, 0.022)] * 10 + [(16, 0.052)] * 500 + [(16, 0.104)] * 100)
    assert fit.run_s(16) == pytest.approx(0.104, rel=0.05)


def test_what_a_size_that_was_never_seen_takes_is_no_doubt_about_the_others():
    fit = fitted([(1, 0.022)] * 60)
    assert not fit.knows(16) and fit.knows(1)
    fit.observe(16, 0.052)
    assert fit.run_s(16) == pytest.approx(0.052, rel=0.01)
    assert fit.run_s(1) == pytest.approx(0.022, rel=0.01)
    assert fit.deviation_s < 1e-6


def test_what_a_larger_run_may_take_lies_between_the_same_and_as_many_times_as_long():
    fit = fitted([(1, 0.022)] * 10)
    assert fit.run_s(16) == pytest.approx(0.352)
    assert fit.likely_s(16) == pytest.approx(0.088)
    assert fit.likely_s(1) == pytest.approx(0.022)
    fit.observe(8, 0.036)
    assert fit.likely_s(16) == pytest.approx(fit.run_s(16)) == pytest.approx(0.052, rel=0.01)
    assert ServiceFit().likely_s(16) is None


def test_a_miss_at_a_size_that_is_known_is_doubt():
    fit = fitted([(n, 0.02 + 0.002 * n) for _ in range(10) for n in (1, 16)])
    assert fit.knows(16)
    fit.observe(16, 0.102)
    assert fit.deviation_s == pytest.approx(0.005, rel=0.1)


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0.0, 1e4)), min_size=1, max_size=50))
def test_an_estimate_is_never_negative_and_never_falls_with_the_size(runs):
    fit = fitted(runs)
    sizes = [fit.run_s(n) for n in (1, 2, 8, 64)]
    assert all(size is not None and size >= 0 for size in sizes)
    assert all(a <= b + 1e-6 * (1 + b) for a, b in zip(sizes, sizes[1:], strict=False))
    assert fit.deviation_s >= 0


def test_a_size_is_a_guess_while_runs_of_one_smaller_size_alone_were_seen():
    fit = ServiceFit()
    assert not fit.guesses(1), "before anything was seen nothing is expected"
    for _ in range(5):
        fit.observe(4, 0.028)
    assert [fit.guesses(size) for size in (1, 4, 5, 16)] == [False, False, True, True]
    fit.observe(5, 0.030)
    assert not fit.guesses(16)


def test_a_run_that_hung_counts_as_a_miss_of_a_few_times_what_was_expected():
    fit = ServiceFit()
    for _ in range(30):
        fit.observe(1, 0.01)
    fit.observe(1, 60.0)
    assert fit.deviation_s == pytest.approx(SPREAD_GAIN * MISS_MOST * 0.01)
