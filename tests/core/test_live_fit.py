"""LiveFit: a service that has become another is believed after a few runs; one odd run is not."""

import pytest

from forebay.core.live_fit import JUMP_RUNS, LiveFit
from forebay.core.service import ServiceFit


def learned(fit, runs=40):
    for number in range(runs):
        items = 1 + number % 16
        fit.observe(items, 0.020 + 0.002 * items)
    return fit


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_service_that_changes_is_believed_after_three_runs(factor):
    fit = learned(LiveFit())
    for _ in range(JUMP_RUNS):
        fit.observe(16, 0.052 * factor)
    assert fit.run_s(16) == pytest.approx(0.052 * factor, rel=0.03)
    assert fit.run_s(1) == pytest.approx(0.022 * factor, rel=0.1)
    assert fit.deviation_s < 0.01 * factor


def test_the_slow_fit_alone_would_still_believe_the_old():
    fit = learned(ServiceFit())
    for _ in range(JUMP_RUNS):
        fit.observe(16, 0.104)
    assert fit.run_s(16) < 0.08


def test_one_odd_run_changes_little():
    fit = learned(LiveFit())
    fit.observe(16, 0.104)
    for _ in range(5):
        fit.observe(16, 0.052)
    assert fit.run_s(16) == pytest.approx(0.052, rel=0.1)


def test_a_slow_drift_is_followed():
    fit = learned(LiveFit())
    for _ in range(8):
        fit.observe(1 + _ * 2, (0.020 + 0.002 * (1 + _ * 2)) * 1.15)
    assert fit.run_s(16) == pytest.approx(0.052 * 1.15, rel=0.02)


def test_the_first_larger_run_is_learned_from_at_once():
    """It is far from what single items let expect, and no other service."""
    fit = LiveFit()
    for _ in range(60):
        fit.observe(1, 0.022)
    fit.observe(7, 0.034)
    assert fit.run_s(16) == pytest.approx(0.052, rel=0.02)
    assert fit.run_s(1) == pytest.approx(0.022, rel=0.02)


def test_single_items_after_long_full_batches_are_no_other_service():
    fit = learned(LiveFit())
    for _ in range(300):
        fit.observe(16, 0.052)
    for items in (1, 2, 1, 3, 1):
        fit.observe(items, 0.020 + 0.002 * items)
        assert fit.run_s(16) == pytest.approx(0.052, rel=0.02)
