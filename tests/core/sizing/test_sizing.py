"""Queues, growth, batches and replicas, by the numbers people know them by."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.sizing.crew import (
    replicas_for_load,
    replicas_for_wait,
    wait_of,
    workers_by_rule,
)
from forebay.core.sizing.growth import full_after_s, growth, lost_share
from forebay.core.sizing.law import ServiceLaw, law_of_rate
from forebay.core.sizing.little import bound_of, holding, wait_at
from forebay.core.sizing.plan import Load, sized

BATCHES = ServiceLaw(fixed_s=0.020, each_s=0.002, batch_max=16)
GPU = law_of_rate(4_000.0)

LAWS = st.builds(
    ServiceLaw,
    fixed_s=st.sampled_from([0.0, 0.02, 0.2]),
    each_s=st.sampled_from([0.001, 0.01, 0.1]),
    batch_max=st.sampled_from([1, 4, 16]),
    at_once=st.sampled_from([1, 8]),
)


# -- Little's law ------------------------------------------------------------------------------------


def test_both_readings_of_w_are_told():
    found = holding(60.0, 0.2, 0.05)
    assert found.waiting == pytest.approx(12.0) and found.in_system == pytest.approx(15.0)
    assert found.bound == 16


def test_a_bound_leaves_room_for_the_root_of_what_stands_there():
    assert [bound_of(items) for items in (0.0, 1.0, 12.0, 100.0, 10_000.0)] == [1, 2, 16, 110, 10_100]


def test_a_queue_of_200_is_the_whole_budget_of_50_ms():
    assert wait_at(200, 4_000.0) == pytest.approx(0.050)
    assert wait_at(200, 2_000.0) == pytest.approx(0.100)
    assert (wait_at(0, 0.0), wait_at(5, 0.0)) == (0.0, math.inf)


# -- growth ------------------------------------------------------------------------------------------


def test_what_cannot_leave_stays():
    assert growth(100.0, 200.0, 60.0, 1000)[:4] == (-100.0, 0, 0, 0.0)
    assert growth(10.0, 0.0, 60.0).empties_s == math.inf
    assert full_after_s(1_000, 1_000.0, 800.0) == 5.0
    assert full_after_s(1_000, 800.0, 800.0) == math.inf


def test_no_queue_keeps_what_lasts():
    assert lost_share(10_000.0, 4_000.0) == pytest.approx(0.6)
    assert lost_share(10_000.0, 12_000.0) == 0.0 and lost_share(0.0, 0.0) == 0.0


# -- batches -----------------------------------------------------------------------------------------


def test_a_fixed_cost_makes_batches_worth_it():
    assert BATCHES.rate_per_s == pytest.approx(307.7, abs=0.05)
    assert ServiceLaw(fixed_s=0.020, each_s=0.002).rate_per_s == pytest.approx(45.45, abs=0.01)
    assert ServiceLaw(each_s=0.1, at_once=32).rate_per_s == pytest.approx(320.0)


@given(st.floats(1, 300))
def test_a_usual_batch_is_what_comes_during_a_run(rate):
    usual = BATCHES.usual_batch(rate)
    assert 1 <= usual <= 16
    if 1 < usual < 16:
        assert usual == pytest.approx(rate * BATCHES.run_s(usual))


# -- replicas ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "replicas"), [(10_000, 3), (5_001, 2), (4_000, 1), (12_000, 3), (1, 1)])
def test_replicas_for_a_load(rate, replicas):
    assert replicas_for_load(GPU, rate) == replicas


def test_the_rule_of_thumb_for_workers():
    assert [workers_by_rule(n, blocking=True) for n in (0.5, 2, 4)] == [3, 5, 9]
    assert [workers_by_rule(n, blocking=False) for n in (0.5, 2, 4)] == [1, 2, 4]


@given(LAWS, st.floats(0.1, 500), st.floats(0.001, 2.0))
def test_the_replicas_it_names_keep_the_promise_and_one_less_does_not(law, rate, wait_max_s):
    found = replicas_for_wait(law, rate, wait_max_s)
    assert wait_of(law, rate, found).late_s <= wait_max_s
    if found > replicas_for_load(law, rate) and law.at_once == 1:
        assert wait_of(law, rate, found - 1).late_s > wait_max_s


@given(LAWS, st.floats(0.1, 500), st.integers(1, 40))
def test_another_replica_makes_nobody_wait_longer(law, rate, replicas):
    assert wait_of(law, rate, replicas + 1).late_s <= wait_of(law, rate, replicas).late_s + 1e-9


@given(LAWS, st.floats(0.1, 500), st.floats(1.0, 3.0), st.integers(1, 40))
def test_more_load_needs_as_many_replicas_at_least(law, rate, more, replicas):
    assert replicas_for_load(law, rate) <= replicas_for_load(law, rate * more)
    assert wait_of(law, rate, replicas).utilisation <= wait_of(law, rate * more, replicas).utilisation


def test_a_wait_for_company_that_is_longer_than_the_wait_allowed_has_no_answer():
    assert replicas_for_wait(BATCHES, 100.0, 0.1, batch_wait_s=0.2) is None


# -- the whole answer --------------------------------------------------------------------------------


def test_one_gpu_of_4000_for_10000_frames_needs_three_or_drops_60_percent():
    found = sized(Load(peak_per_s=10_000.0, law=GPU, replicas=1))
    assert not found.verdict.good and found.lost == pytest.approx(0.6) and found.needed == 3
    assert found.verdict.text.startswith("needs 3 replicas or drops 60 %")
    assert "a longer queue only waits longer" in found.verdict.text


def test_enough_replicas_are_said_to_be_enough_and_how_busy_they_are():
    found = sized(Load(peak_per_s=10_000.0, law=GPU, replicas=3, wait_max_s=0.05))
    assert found.verdict.good and "83.3 % busy" in found.verdict.text
    assert found.wait_now.late_s < 0.05


def test_replicas_that_keep_up_but_wait_too_long_are_too_few():
    found = sized(Load(peak_per_s=60.0, law=ServiceLaw(each_s=0.05), wait_max_s=0.02, replicas=4))
    assert not found.verdict.good and found.lost == 0.0 and found.needed > 4
    assert "with 4 the p99 waits" in found.verdict.text


def test_without_a_service_time_only_the_queue_is_sized():
    found = sized(Load(peak_per_s=60.0, wait_max_s=0.2))
    assert found.queue.bound == found.queue_max == 16 and found.needed is None and found.verdict.good
    assert sized(Load(peak_per_s=60.0)).queue is None


def test_the_bound_of_the_setting_counts_what_runs_too():
    found = sized(Load(peak_per_s=60.0, law=ServiceLaw(each_s=0.05), wait_max_s=0.2))
    assert (found.queue.bound, found.needed, found.queue_max) == (16, 4, 20)


@pytest.mark.parametrize(("per_s", "target"), [(4_000.0, 160), (2_000.0, 80), (10.0, 1)])
def test_the_target_of_the_autoscaler_follows_from_the_speed_and_the_wait(per_s, target):
    found = sized(Load(peak_per_s=per_s * 2.5, law=law_of_rate(per_s), wait_max_s=0.05, mean_per_s=per_s))
    assert found.hpa.target == target
    assert found.hpa.replicas_min == 1 and found.hpa.replicas_max == found.needed


def test_no_answer_is_an_answer():
    found = sized(Load(peak_per_s=60.0, law=BATCHES, wait_max_s=0.01, batch_wait_s=0.02))
    assert not found.verdict.good and found.needed is None and found.hpa is None
    assert "the wait for company is 20 ms" in found.verdict.text
