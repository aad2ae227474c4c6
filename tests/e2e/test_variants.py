"""Variants in a served application: a queue that fills brings the task down, and every result says by what."""

import pytest

from tests.e2e.harness import Served
from tests.e2e.test_breakers import metric
from tests.e2e.test_predict import predict
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)
WAIT_MAX_S = 40.0


@pytest.fixture
def server(tmp_path):
    go = tmp_path / "go"
    with Served(tmp_path / "s", "varied.py", env={"VARIED_GO": str(go)}, workers=1) as served:
        served.go = go
        yield served


def level(server, task):
    return server.get(f"/v1/tasks/{task}").json["level"]


def fill(server, task):
    """Submit more than three quarters of its queue and wait until it is down."""
    jobs = [server.submit(task, number)["job_id"] for number in range(19)]
    until(lambda: level(server, task) == 1, WAIT_MAX_S, "the smaller model runs")
    return jobs


def test_a_queue_that_fills_is_served_by_the_smaller_model_and_the_results_say_so(server):
    jobs = fill(server, "Large")
    server.go.touch()
    done = server.finals(jobs)
    assert {job["status"] for job in done.values()} == {"COMPLETED"}
    for number, job_id in enumerate(jobs):
        made_by = "small" if done[job_id]["degraded"] == "variant_1" else "large"
        assert done[job_id]["result"] == f"{made_by} {number}"
        answer = server.get(f"/v1/jobs/{job_id}/result")
        assert answer.headers["forebay-level"] == ("1" if made_by == "small" else "0")
        assert answer.headers.get("forebay-degraded") == done[job_id]["degraded"]
        assert done[job_id]["timeline"][-1].get("degraded") == done[job_id]["degraded"]
    smaller = sum(job["degraded"] == "variant_1" for job in done.values())
    assert 10 <= smaller <= 18
    assert metric(server, "inference_degraded_total", level="variant_1") == smaller
    assert metric(server, "inference_level", task="Large") == 1.0
    assert "degrading" in server.log
    # Requests go by the same ladder; urgent ones keep the large model.
    answer = predict(server, "Large", 7)
    assert (answer.json, answer.headers["forebay-level"]) == ("small 7", "1")
    assert answer.headers["forebay-degraded"] == "variant_1"
    urgent = predict(server, "Large", 8, forebay_priority="high")
    assert (urgent.json, urgent.headers["forebay-level"]) == ("large 8", "0")


def test_when_the_queue_is_empty_the_task_itself_comes_back(server):
    jobs = fill(server, "brief")
    shown = server.get("/v1/tasks/brief").json["variants"]
    assert shown == [{"level": 1, "name": "half", "quality": None, "enter": 0.75, "leave": 0.5}]
    server.go.touch()
    assert set(server.finals(jobs)) == set(jobs)
    until(lambda: level(server, "brief") == 0, WAIT_MAX_S, "the task itself runs again")
    assert "recovering" in server.log
    answer = predict(server, "brief", 1)
    assert (answer.json, answer.headers["forebay-level"]) == (0, "0")
