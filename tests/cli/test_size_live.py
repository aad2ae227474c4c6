"""`forebay size --url`: what a server tells becomes the load and the limits of each task."""

import contextlib
import json

import pytest

from forebay.cli import sizing_live
from forebay.cli.edge import run

TASK = {
    "task": "Model", "batch_max": 16, "batch_wait_s": 0.005, "timeout_s": 600.0, "attempts_max": 3,
    "backoff": {"base_s": 1.0, "factor": 2.0, "cap_s": 3600.0}, "ttl_s": 3_600.0, "deadline_s": None,
    "queue_max": 100_000, "queue_bytes_max": 1 << 30, "concurrency": 1, "lease_s": 30.0, "heartbeat_s": 5.0,
    "grace_s": 30.0, "replicas": 2,
    "service": {"fixed_s": 0.02, "each_s": 0.002, "variance": 0.04, "runs": 5_000, "p999_s": 0.06},
}  # fmt: skip
QUEUE = {
    "task": "Model", "open": 10, "bytes": 25_000,
    "rates": {"arrivals_p99_per_s": 500.0, "capacity_per_s": 615.4},
}  # fmt: skip


@pytest.fixture
def size(monkeypatch, capsys):
    """Return a function that sizes such a server and returns (exit code, its tasks)."""

    def call(*argv, task=None, queue=None, budgets=()):
        class Client:
            terms = None

            def tasks(self):
                return [TASK | (task or {})]

            def queues(self):
                return [QUEUE | (queue or {})]

            def run(self, plan):
                plan.close()
                return list(budgets)

        monkeypatch.setattr(sizing_live, "connect", lambda *_: contextlib.nullcontext(Client()))
        code = run(["size", "--url", "http://x", "--json", *argv])
        out, err = capsys.readouterr()
        assert err == "" or code == 1
        return code, json.loads(out).get("tasks", err)

    return call


def test_a_healthy_server_is_told_to_be_one(size):
    code, (found,) = size()
    assert code == 0 and found["findings"] == [] and found["task"] == "Model"
    assert found["peak_per_s"] == 500.0 and found["item_bytes"] == 2_500
    assert found["service"]["rate_per_s"] == pytest.approx(307.69, abs=0.01)
    assert found["replicas"]["there_are"] == 2 and "will do" in found["verdict"]["text"]


@pytest.mark.parametrize(
    ("task", "argv", "code"),
    [
        ({"timeout_s": 0.07}, (), "timeout_near_runs"),
        ({"grace_s": 0.05}, (), "grace_under_runs"),
        ({"ttl_s": 500.0}, (), "ttl_under_timeout"),
        ({"attempts_max": 14}, (), "ttl_under_waits"),
        ({"deadline_s": 0.004}, (), "batch_wait_over_deadline"),
        ({"ttl_s": 86_400.0, "queue_max": 90_000_000}, (), "queue_over_ttl"),
        ({}, ("--wait-max", "2s"), "queue_over_wait"),
        ({"queue_max": 100}, ("--wait-max", "200ms", "--hpa-target", "80"), "hpa_over_wait"),
        ({"queue_max": 100}, ("--hpa-target", "50"), "hpa_over_queue"),
        ({}, ("--budget", "700/s"), "budget_over_capacity"),
        ({}, ("--memory", "100MB"), "queue_over_memory"),
    ],
)
def test_a_limit_that_contradicts_what_was_measured_is_found(size, task, argv, code):
    answer, (found,) = size(*argv, task=task)
    assert answer == 1 and code in [one["code"] for one in found["findings"]]


def test_a_ttl_that_the_door_judges_makes_no_queue_too_long(size):
    assert size(task={"ttl_s": 3_600.0, "queue_max": 90_000_000})[0] == 0


def test_flags_go_before_what_was_measured(size):
    code, (found,) = size("--replicas", "1")
    assert code == 1 and found["replicas"]["there_are"] == 1 and found["replicas"]["needed"] == 2
    assert size("--replicas", "1", "--peak", "200/s")[0] == 0
    _, (found,) = size("--per-replica", "1000/s", "--item-size", "1MB")
    assert found["service"]["rate_per_s"] == 1_000 and found["item_bytes"] == 1_000_000


def test_a_task_that_never_ran_or_got_nothing_is_told_as_far_as_it_is_known(size):
    code, (found,) = size(task={"service": None, "replicas": 0})
    assert code == 0 and "service" not in found and found["peak_per_s"] == 500.0
    rates = {"arrivals_p99_per_s": 0.0, "capacity_per_s": None}
    code, (found,) = size(queue={"rates": rates, "open": None, "bytes": None})
    assert code == 0 and found["settings"] == {}


def test_budgets_that_let_in_more_than_can_be_done_are_one_answer_more(size):
    code, found = size(budgets=[{"rate_per_s": 400.0}, {"rate_per_s": 300.0}])
    assert code == 1 and found[1]["findings"][0]["code"] == "budget_over_capacity"
    assert size(budgets=[{"rate_per_s": 300.0}])[0] == 0


def test_a_server_of_another_version_is_said_to_be_one(size):
    code, told = size(queue={"rates": {}})
    assert code == 1 and "of another version" in told
