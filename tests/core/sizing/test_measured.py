"""What was measured and declared of a task, as sizing takes it."""

import pytest

from forebay.config import Settings
from forebay.core.estimator import Estimator
from forebay.core.estimator.run_times import GENERATION, RunTimes
from forebay.core.retry import RetryPolicy
from forebay.core.settle import SettlePolicy
from forebay.core.sizing.findings import findings
from forebay.core.sizing.measured import declared, measured, retry_waits_s
from forebay.core.task import TaskSpec


def limits(spec, **fields):
    has = Settings()
    return declared(
        spec,
        **{
            "lease_s": has.lease,
            "heartbeat_s": has.heartbeat,
            "grace_s": has.grace,
            "queue_max": has.queue_max,
            "queue_bytes_max": has.queue_bytes_max,
            **fields,
        },
    )


# -- declared ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        TaskSpec(name="t"),
        TaskSpec(name="t", kind="class", batch_max=64, batch_wait_s=0.005),
        TaskSpec(name="t", timeout_s=60.0, attempts_max=3),
        TaskSpec(name="t", concurrency=32, deadline_s=1.0),
    ],
)
def test_the_default_settings_contradict_nothing(spec):
    assert findings(limits(spec, disk_free_b=2 << 30)) == []


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (TaskSpec(name="t", ttl_s=60.0), "ttl_under_timeout"),
        (TaskSpec(name="t", attempts_max=60), "ttl_under_waits"),
        (TaskSpec(name="t", batch_wait_s=1.0, deadline_s=0.5), "batch_wait_over_deadline"),
        (TaskSpec(name="t", queue_bytes_max=3 << 30), "queue_over_disk"),
    ],
)
def test_a_task_that_contradicts_itself_is_found_before_it_runs(spec, code):
    assert [one.code for one in findings(limits(spec, disk_free_b=2 << 30))] == [code]


def test_the_pauses_are_those_of_the_policy():
    assert retry_waits_s(RetryPolicy(), 5) == (1.0, 2.0, 4.0, 8.0)
    assert retry_waits_s(RetryPolicy(base_s=1.0, cap_s=3.0), 4) == (1.0, 2.0, 3.0)
    assert retry_waits_s(RetryPolicy(), 1) == ()
    spec = TaskSpec(name="t", attempts_max=4, settle=SettlePolicy(retry=RetryPolicy(base_s=5.0)))
    assert limits(spec).retry_waits_s == (5.0, 10.0, 20.0)


# -- measured ----------------------------------------------------------------------------------------


def test_nothing_is_known_before_the_first_run():
    assert measured(Estimator()) is None


def test_the_law_of_batches_is_found_again():
    estimator = Estimator(batch_max=16)
    for round_ in range(400):
        items = 1 + round_ % 16
        estimator.ran(items=items, took_s=0.020 + 0.002 * items)
    found = measured(estimator)
    assert found.fixed_s == pytest.approx(0.020, rel=0.05) and found.each_s == pytest.approx(0.002, rel=0.05)
    assert found.runs == 400 and found.p999_s == pytest.approx(0.052, rel=0.02)


def test_a_function_has_the_time_of_one_item_however_many_came_in_a_frame():
    estimator = Estimator()
    for _ in range(50):
        estimator.ran(items=100, took_s=0.5)
    found = measured(estimator)
    assert (found.fixed_s, found.each_s) == (pytest.approx(0.0, abs=1e-9), pytest.approx(0.005))
    assert found.p999_s == pytest.approx(0.005, rel=0.02)


def test_the_slowest_counts_until_there_are_a_thousand_runs():
    times = RunTimes()
    assert times.late() is None
    for took_s in (0.1, 9.0, 0.2):
        times.add(took_s)
    assert times.late() == (3, pytest.approx(9.0))


def test_one_run_in_a_thousand_is_slower_than_the_p999():
    times = RunTimes()
    for number in range(5_000):
        times.add(60.0 if number % 500 == 0 else 0.1)
    assert times.late().p999_s == pytest.approx(60.0, rel=0.02)
    assert RunTimes.late(times).runs == 5_000


def test_what_runs_took_long_ago_is_forgotten():
    times = RunTimes()
    times.add(60.0)
    for _ in range(2 * GENERATION):
        times.add(0.1)
    runs, p999_s = times.late()
    assert GENERATION <= runs <= 2 * GENERATION and p999_s == pytest.approx(0.1, rel=0.02)
