"""One task of a running server: who waits, who works, and what keeps the two apart."""

import pytest

from forebay.core.doctor import readiness_findings, served_findings
from forebay.core.doctor.readings import Gpu, Served

HEALTHY = Served(
    "Detect", waiting=20, running=16, capacity=1000, capacity_b=10**6, oldest_age_s=0.5, arrivals_per_s=300.0,
    served_per_s=310.0, replicas=1, ready=1, fixed_s=0.02, each_s=0.002, batch_max=16, breaker="closed",
)  # fmt: skip
GPUS = (Gpu("A10", 0.9),)


def test_a_healthy_task_has_nothing_wrong():
    assert served_findings(HEALTHY, GPUS) == []


@pytest.mark.parametrize(
    ("changed", "cause", "change"),
    [
        ({"ready": 0, "replicas": 0}, "no_worker", "forebay work"),
        ({"ready": 0, "replicas": 2}, "no_worker", "forebay workers"),
        ({"restarts": 3, "last_crash": "out of memory"}, "crash_loop", "dead-letters"),
        ({"paused": True}, "paused", "forebay queues resume Detect"),
        ({"breaker": "open"}, "breaker_open", "fallback"),
        ({"arrivals_per_s": 370.0}, "too_little_capacity", "batch_max=32"),
        ({"arrivals_per_s": 400.0, "deadline_s": 0.1}, "too_little_capacity", "2 replicas"),
        ({"arrivals_per_s": 900.0}, "too_little_capacity", "3 replicas"),
        ({"waiting": 900}, "queue_nearly_full", "replicas"),
        ({"size_b": 950_000}, "queue_nearly_full", "replicas"),
        ({"running": 0, "oldest_age_s": 61.0}, "stalled", "explain"),
        ({"stale": 2}, "lease_lost", "lease"),
    ],
)
def test_a_fault_is_named_alone_and_with_its_task(changed, cause, change):
    (found,) = served_findings(HEALTHY._replace(**changed), GPUS)
    assert (found.code, found.task) == (cause, "Detect") and change in found.change


def test_m4_a_burst_of_10000_frames_a_second_before_4000_is_three_gpus_or_60_percent_dropped():
    gpus = HEALTHY._replace(arrivals_per_s=10_000.0, served_per_s=4_000.0, fixed_s=None)
    (found,) = served_findings(gpus, GPUS)
    assert "3 replicas" in found.change and "drop 60%" in found.change


def test_a_gpu_that_idles_while_work_waits_is_starved():
    (found,) = served_findings(HEALTHY, (Gpu("A10", 0.2), Gpu("A10", 0.4)))
    assert found.code == "gpu_starved" and "30%" in found.evidence
    assert served_findings(HEALTHY._replace(waiting=0), (Gpu("A10", 0.0),)) == []
    assert served_findings(HEALTHY, (Gpu("A10", None),)) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"ready": None, "replicas": 0},  # not shown to us
        {"served_per_s": None, "arrivals_per_s": 10_000.0},  # never measured
        {"paused": True, "waiting": 0},
        {"arrivals_per_s": 320.0},  # within what was measured
    ],
)
def test_what_is_not_known_is_not_a_fault(changed):
    assert served_findings(HEALTHY._replace(**changed), GPUS) == []


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("store_full", "free room on the disk"),
        ("store_unavailable", "bring its store back"),
        ("draining", "start it again"),
        ("no replica of Detect is ready (starting)", "wait while they load"),
        ("a reason of tomorrow", "its log"),
    ],
)
def test_a_server_that_takes_no_new_work_is_not_told_to_be_well(reason, change):
    (found,) = readiness_findings(reason)
    assert found.code == "not_ready" and reason in found.evidence and change in found.change


def test_a_ready_server_is_well_and_a_missing_worker_is_told_once():
    assert readiness_findings("") == []
    of_tasks = served_findings(HEALTHY._replace(ready=0))
    assert [one.code for one in of_tasks] == ["no_worker"]
    assert readiness_findings("no replica of Detect is ready (starting)", of_tasks) == []
    assert readiness_findings("store_full", of_tasks) != []
