"""The estimate of a wait, from what was measured, and what its misses teach it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.dispatcher import Dispatcher
from forebay.core.estimator import Crew, Estimator
from forebay.core.estimator.calibration import SCORES_MAX, Coverage, Stage
from forebay.core.estimator.crew import start_after
from forebay.core.estimator.pending import (
    CREDIT_MAX,
    CREDIT_PER_S,
    PENDING_MAX,
    STALE_FACTOR,
    STALE_S,
    Pending,
)
from forebay.core.estimator.service import SAMPLES_MAX, ServiceModel
from forebay.core.estimator.traffic import DRAIN_BUCKETS_MAX, DRAIN_WINDOW_S, Arrivals
from forebay.core.job import AGEING_S, Job, JobError, Lease
from forebay.core.task import TaskSpec

NOW = 1_000.0
HIGH, NORMAL, LOW = 2, 5, 8


def measured(took_s=0.5, *, items=1, runs=20, replicas=1, batch_max=1, size_b=0):
    estimator = Estimator(batch_max=batch_max)
    estimator.crew.count = replicas
    for _ in range(runs):
        estimator.ran(items=items, took_s=took_s, size_b=size_b)
    return estimator


def middle(estimator, **fields):
    """The estimate before its calibration."""
    return estimator.eta(now=NOW, **fields).middle_s


# -- the wait --------------------------------------------------------------------------------------


def test_nothing_is_told_before_anything_was_measured():
    estimator = Estimator()
    assert estimator.eta(position=1, now=NOW) is None
    assert estimator.rest(ran_s=1.0) is None
    assert estimator.service_s() is None
    assert estimator.capacity_per_s() is None
    assert estimator.drain_per_s(now=0.0) is None


@pytest.mark.parametrize(
    ("position", "running", "replicas", "expected_s"),
    [
        (1, 0, 1, 0.5),  # a free replica: its own service
        (1, 1, 2, 0.5),  # one of two is free
        (1, 1, 1, 0.75),  # half of what runs is still to come
        (11, 1, 1, 5.75),
        (11, 2, 2, 3.25),
        (11, 99, 2, 3.25),  # no more run than there are replicas
        (5, 0, 0, 2.5),  # none is ready: as if one were
    ],
)
def test_the_wait_is_what_stands_before_it_shared_by_the_replicas(position, running, replicas, expected_s):
    estimator = measured(replicas=replicas)
    assert middle(estimator, position=position, running=running) == pytest.approx(expected_s)


def seen_and_heard(ready, far):
    """Return an estimator whose own idle replicas are seen, with as many more on other nodes."""
    dispatcher = Dispatcher([TaskSpec(name="t")])
    estimator = Estimator(task="t")
    estimator.crew = crew = Crew(dispatcher.hand)
    for replica in range(ready):
        dispatcher.replica_ready(replica)
        crew.ready(replica, now=NOW)
    for _ in range(20):
        estimator.ran(items=1, took_s=0.5)
    crew.heard("t", far)
    return estimator


@pytest.mark.parametrize(
    ("ready", "far", "running", "expected_s"),
    [
        (1, 0, 0, 5.5),
        (1, 1, 0, 3.0),  # two take turns
        (1, 1, 1, 3.0),  # what runs, and is not here, is on the other one: it has half of a run to go
        (1, 3, 0, 1.5),
        (0, 2, 0, 3.0),  # none here
        (0, 0, 0, 5.5),
    ],
)
def test_replicas_of_other_nodes_take_their_turns_too(ready, far, running, expected_s):
    estimator = seen_and_heard(ready, far)
    told = middle(estimator, position=11, running=running)
    assert told == pytest.approx(expected_s, abs=0.26)
    assert estimator.replicas == ready + far
    if ready + far:
        assert estimator.capacity_per_s() == pytest.approx(2.0 * (ready + far), rel=0.01)
    estimator.crew.heard("t", 0)
    assert middle(estimator, position=11) == pytest.approx(5.5 / max(1, ready)), "they are gone"


@pytest.mark.parametrize(
    ("offsets", "runs", "expected"),
    [
        ([0.0], 3, 3.0),
        ([0.4], 3, 3.4),
        ([0.0, 0.0], 1, 0.0),  # the other one is free
        ([0.0, 0.5], 2, 1.0),  # they take turns: 0, 0.5, 1.0
        ([0.0, 0.5], 3, 1.5),
        ([0.0, 9.0], 3, 3.0),  # one that loads for long is of no use yet
    ],
)
def test_replicas_take_turns_as_they_get_free(offsets, runs, expected):
    assert start_after(offsets, runs, 1.0) == pytest.approx(expected)


@given(
    st.lists(st.floats(0, 50), min_size=1, max_size=12).map(sorted), st.integers(0, 300), st.floats(0.01, 5)
)
def test_the_start_is_near_what_playing_it_through_gives(offsets, runs, run_s):
    free = list(offsets)
    for _ in range(runs):
        first = min(free)
        free[free.index(first)] = first + run_s
    assert start_after(offsets, runs, run_s) == pytest.approx(min(free), abs=1.01 * run_s)


def test_nine_of_ten_is_later_when_service_varies():
    estimator = measured(runs=0)
    for took_s in (0.1, 0.9) * 20:
        estimator.ran(items=1, took_s=took_s)
    eta = estimator.eta(position=10, now=NOW)
    assert eta.p90_s > eta.p50_s + 0.5


def test_in_a_batch_one_job_waits_for_the_run_and_costs_its_share():
    estimator = measured(0.8, items=8, batch_max=8)
    assert estimator.service_s() == (pytest.approx(0.8), pytest.approx(0.8))
    assert estimator.capacity_per_s() == pytest.approx(10.0)
    assert middle(estimator, position=25) == pytest.approx(3 * 0.8 + 0.1)  # three batches, then with nobody


def test_a_batch_costs_a_fixed_part_and_one_for_each():
    estimator = Estimator(batch_max=16)
    for items in (1, 4, 16, 9, 2) * 8:
        estimator.ran(items=items, took_s=0.2 + 0.01 * items)
    assert middle(estimator, position=1) == pytest.approx(0.21, rel=0.02)
    assert middle(estimator, position=16 * 10 + 1) == pytest.approx(10 * 0.36 + 0.21, rel=0.02)


def test_larger_inputs_are_expected_to_take_longer():
    estimator = Estimator()
    estimator.crew.count = 1
    for _ in range(40):
        estimator.ran(items=1, took_s=1.0, size_b=100)
        estimator.ran(items=1, took_s=3.0, size_b=100_000)
    assert middle(estimator, position=1, size_b=100) == pytest.approx(1.0, rel=0.15)
    assert middle(estimator, position=1, size_b=100_000) == pytest.approx(3.0, rel=0.15)
    assert middle(estimator, position=1, size_b=5_000) == pytest.approx(2.0, rel=0.15)  # never seen: average


def test_another_regime_is_noticed_within_a_few_runs_and_the_old_one_forgotten():
    estimator = measured(1.0, runs=100)
    for _ in range(16):
        estimator.ran(items=1, took_s=2.0)
    assert middle(estimator, position=1) == pytest.approx(2.0, rel=0.01)
    assert middle(estimator, position=101) == pytest.approx(202.0, rel=0.1)


def test_one_outlier_does_not_bend_the_law():
    estimator = measured(1.0, runs=60)
    estimator.ran(items=1, took_s=200.0)
    assert middle(estimator, position=1) < 1.2


def test_a_few_samples_are_not_believed_to_have_no_tail():
    few, many = measured(1.0, runs=2), measured(1.0, runs=40)
    width = [eta.p90_s - eta.p50_s for eta in (one.eta(position=10, now=NOW) for one in (few, many))]
    assert width[0] > 4 * width[1]


def test_jobs_that_are_alike_in_bursts_leave_a_doubt_that_more_jobs_do_not_shrink():
    alike, mixed = Estimator(), Estimator()
    for at in range(128):
        noise, shift = (at * 7919 % 101) / 100, 0.5
        alike.ran(items=1, took_s=0.5 + noise + shift * (at // 16 % 2))
        mixed.ran(items=1, took_s=0.5 + noise + shift * (at % 2))
    wide, narrow = (one.eta(position=1_000, now=NOW).scale_s for one in (alike, mixed))
    assert wide > 1.3 * narrow


def test_jobs_that_come_again_make_the_wait_longer():
    once, again = measured(), measured()
    for _ in range(200):
        once.settled(final=1, now=NOW)
        again.settled(final=1, again=1, now=NOW)
    assert middle(again, position=100) == pytest.approx(2 * middle(once, position=100), rel=0.1)


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=400), st.integers(1, 1_000), st.integers(0, 8))
def test_an_estimate_is_ordered_bounded_and_grows_with_the_position(samples, position, replicas):
    estimator = measured(runs=0, replicas=replicas)
    for took_s in samples:
        estimator.ran(items=1, took_s=took_s)
    eta, later = estimator.eta(position=position, now=NOW), estimator.eta(position=position + 50, now=NOW)
    assert 0 <= eta.p50_s <= eta.p90_s
    assert later.middle_s >= eta.middle_s - 1e-9
    assert len(estimator.service._samples) <= SAMPLES_MAX


# -- replicas that can be seen ----------------------------------------------------------------------


def crewed(*, replicas=2, batch_max=1, concurrency=1, service_s=1.0):
    """An estimator beside a real dispatcher."""
    dispatcher = Dispatcher([TaskSpec(name="t", batch_max=batch_max, concurrency=concurrency)])
    estimator = Estimator(task="t", batch_max=batch_max, concurrency=concurrency)
    estimator.crew = crew = Crew(dispatcher.hand)
    for replica in range(1, replicas + 1):
        crew.starting(replica, at=NOW - 10)
        crew.ready(replica, now=NOW - 5)
        dispatcher.replica_ready(replica)
    for _ in range(20):
        estimator.ran(items=batch_max, took_s=service_s)
        dispatcher.hand.tasks["t"].fit.observe(batch_max, service_s)
    return estimator, dispatcher


def run_some(dispatcher, count, *, at):
    dispatcher.poll(now=at)
    asked = dispatcher.hand.tasks["t"].asked
    leases = [Lease(Job(f"j{at}{n}", "t", b"1", at, at), 1, 1, at + 30, "w", at) for n in range(count)]
    dispatcher.leased("t", leases, asked=asked, now=at)
    return dispatcher.poll(now=at)


def test_what_a_running_batch_has_done_already_is_not_waited_for_again():
    estimator, dispatcher = crewed(replicas=1)
    assert middle(estimator, position=1) == pytest.approx(1.0)
    run_some(dispatcher, 1, at=NOW)
    assert estimator.eta(position=1, now=NOW + 0.2).middle_s == pytest.approx(1.8, abs=0.05)
    assert estimator.eta(position=1, now=NOW + 0.8).middle_s == pytest.approx(1.2, abs=0.05)


def test_a_replica_that_is_nearly_loaded_counts_and_one_of_unknown_load_does_not():
    estimator, _ = crewed(replicas=1)
    alone = middle(estimator, position=21)
    estimator.crew.starting(7, at=NOW - 4)  # loads took 5 s: ready in one
    helped = middle(estimator, position=21)
    assert helped == pytest.approx(alone / 2 + 1, rel=0.15)
    fresh = Estimator(task="t")
    fresh.crew = Crew(Dispatcher([TaskSpec(name="t")]).hand)
    fresh.crew.starting(1, at=NOW)
    assert fresh.crew.loading(NOW) == []


def test_a_dead_replica_is_missed_at_once():
    estimator, dispatcher = crewed(replicas=2)
    before = middle(estimator, position=21)
    dispatcher.replica_died(2, error=JobError("crashed", "x"), now=NOW, jitter=0.5)
    estimator.crew.gone(2, was_ready=True)
    assert estimator.replicas == 1
    assert middle(estimator, position=21) == pytest.approx(2 * before, rel=0.1)


def test_concurrent_calls_of_one_replica_are_so_many_places():
    estimator, dispatcher = crewed(replicas=1, concurrency=4)
    assert middle(estimator, position=4) == pytest.approx(1.0)
    assert middle(estimator, position=9) == pytest.approx(3.0)
    assert estimator.capacity_per_s() == pytest.approx(4.0)


# -- urgency ----------------------------------------------------------------------------------------


def busy_arrivals(*, high_per_s, seconds=120):
    arrivals = Arrivals()
    for second in range(seconds):
        arrivals.count(HIGH, high_per_s, now=NOW + second)
        arrivals.count(NORMAL, 1, now=NOW + second)
    arrivals.roll(NOW + seconds)
    return arrivals


def test_more_urgent_jobs_that_will_come_are_waited_for_too():
    arrivals = busy_arrivals(high_per_s=2)
    assert arrivals.mixed
    count, variance = arrivals.overtaking(NORMAL, wait_s=10.0, item_s=0.1)
    assert count == pytest.approx(2 * 10 / 0.8, rel=0.1)  # they make the wait longer for others of them
    assert variance > count
    assert arrivals.overtaking(HIGH, wait_s=10.0, item_s=0.1)[0] == pytest.approx(0.0)


def test_ageing_bounds_how_many_can_overtake():
    arrivals = busy_arrivals(high_per_s=2)
    count, _ = arrivals.overtaking(3, wait_s=1e6, item_s=0.1)
    assert count == pytest.approx(2 * AGEING_S, rel=0.1)


def test_a_low_job_is_told_a_later_and_wider_time_when_urgent_ones_keep_coming():
    estimator = measured(0.1)
    estimator.arrivals = busy_arrivals(high_per_s=5)
    now = NOW + 120
    high, low = (estimator.eta(position=50, now=now, priority=priority) for priority in (HIGH, LOW))
    assert low.middle_s > 1.5 * high.middle_s
    assert low.scale_s > high.scale_s


# -- the drain --------------------------------------------------------------------------------------


def test_the_drain_is_what_left_lately():
    estimator = Estimator()
    for second in range(10):
        estimator.settled(final=20, now=100.0 + second)
    assert estimator.drain_per_s(now=110.0) == pytest.approx(20.0)
    assert estimator.drain_per_s(now=110.0 + 2 * DRAIN_WINDOW_S) is None


def test_the_drain_is_what_replicas_could_do_when_little_came():
    estimator = measured(0.1, replicas=4)
    estimator.settled(final=1, now=0.0)
    assert estimator.drain_per_s(now=1.0) == pytest.approx(40.0)


def test_the_drain_in_a_burst_is_counted_in_one_bucket():
    estimator = Estimator()
    for _ in range(1_000):
        estimator.settled(final=1, now=5.0)
    assert estimator.drain_per_s(now=5.0) == pytest.approx(1_000.0)
    assert len(estimator.drain._buckets) == 1 <= DRAIN_BUCKETS_MAX


def test_a_few_departures_are_no_rate_where_the_replicas_are_known():
    estimator = measured(7.0, replicas=2)
    estimator.settled(final=2, now=0.0)
    assert estimator.drain_per_s(now=0.1) == pytest.approx(2 / 7)


# -- what misses teach ------------------------------------------------------------------------------


def test_a_model_that_is_wrong_by_a_third_is_right_after_some_jobs():
    """Every job takes a third longer than what runs say (a store that is slow, say)."""
    estimator = measured(1.0, runs=50)
    late = []
    for number in range(300):
        now = NOW + 100 * number
        eta = estimator.eta(position=10, now=now)
        estimator.told(f"j{number}", eta, now=now)
        true_s = 13.0 * (1 + 0.1 * ((number * 7919) % 101 / 50 - 1))  # spread, in no order
        (error_s,) = estimator.ended((f"j{number}",), now=now + true_s)
        assert error_s == pytest.approx(true_s - eta.p50_s, abs=1e-9)
        late.append((true_s > eta.p50_s, true_s > eta.p90_s))
    assert sum(by50 for by50, _ in late[:10]) == 10
    assert 0.3 < sum(by50 for by50, _ in late[100:]) / 200 < 0.6
    assert sum(by90 for _, by90 in late[100:]) / 200 < 0.15
    assert estimator.coverage.count == 300


@given(st.lists(st.floats(-1e3, 1e3), max_size=3 * SCORES_MAX))
def test_the_memory_of_a_stage_is_bounded_and_its_offsets_ordered(scores):
    stage = Stage()
    for score in scores:
        stage.score(score, by_p50=score <= stage.early, by_p90=score <= stage.late)
        assert stage.early <= stage.late
    assert len(stage._scores) == len(stage._order) <= SCORES_MAX
    assert sorted(stage._scores) == stage._order


def test_coverage_is_of_the_last_scores():
    coverage = Coverage()
    assert coverage.shares() is None
    for at in range(1_000):
        coverage.add(by_p50=at >= 872, by_p90=at >= 744)
    assert coverage.shares() == (0.5, 1.0)


def test_at_high_rates_a_sample_is_kept_and_it_is_bounded():
    pending, eta = Pending(), measured().eta(position=1, now=NOW)
    for at in range(100_000):
        pending.offer(f"j{at}", eta, now=NOW + at / 10_000)
    assert PENDING_MAX / 2 <= len(pending) <= PENDING_MAX
    assert pending.stride > 100
    for at in range(100_000):
        pending.take((f"j{at}",))
    assert not len(pending)
    for at in range(100_000):
        pending.offer(f"k{at}", eta, now=NOW + 20 + at / 10)
        pending.take((f"k{at}",))
    assert pending.stride == 1  # few at a time: all are kept again


def test_jobs_that_never_end_do_not_stop_the_scoring():
    pending, eta = Pending(), measured().eta(position=1, now=NOW)
    for at in range(2_000):
        pending.offer(f"lost{at}", eta, now=NOW + at / 100)
    later = NOW + STALE_FACTOR * eta.p90_s + STALE_S + 21
    for at in range(400_000):
        pending.offer(f"k{at}", eta, now=later + at)
        if pending.take((f"k{at}",)) and len(pending) < PENDING_MAX / 2:
            break
    assert len(pending) < PENDING_MAX / 2


def test_scoring_costs_at_most_so_much_a_second():
    pending, eta = Pending(), measured().eta(position=1, now=NOW)
    kept = 0
    for at in range(100_000):
        pending.offer(f"j{at}", eta, now=NOW + at / 10_000)
        kept += len(pending.take((f"j{at}",)))
    assert 10 * CREDIT_PER_S <= kept <= 10 * CREDIT_PER_S + CREDIT_MAX + 1


def test_a_cancelled_job_teaches_nothing():
    estimator = measured()
    eta = estimator.eta(position=1, now=NOW)
    estimator.told("a", eta, now=NOW)
    assert estimator.scoring
    estimator.forget(("a",))
    assert estimator.ended(("a",), now=NOW + 99) == []
    assert estimator.coverage.count == 0


def test_a_running_job_is_told_what_is_left_of_its_run():
    estimator = measured(10.0)
    assert estimator.rest(ran_s=4.0).middle_s == pytest.approx(6.0)
    overdue = estimator.rest(ran_s=30.0)
    assert 0 < overdue.p50_s < overdue.p90_s


def test_a_job_that_waits_for_its_time_starts_no_sooner():
    eta = measured(1.0).eta(position=3, now=NOW)
    assert eta.later(1.0).p50_s == pytest.approx(eta.p50_s)  # it would have waited that long anyway
    later = eta.later(50.0)
    assert later.starts_s == pytest.approx(50.0)
    assert later.p90_s - later.p50_s == pytest.approx(eta.p90_s - eta.p50_s)


def test_what_is_learnt_of_a_service_is_a_function_of_its_runs_alone():
    models = [ServiceModel(batch_max=4), ServiceModel(batch_max=4)]
    for model in models:
        for at in range(300):
            model.observe(1 + at % 4, 0.1 + (at * 7919 % 31) / 100, at)
    assert models[0].facts() == models[1].facts()
