"""Breakers in a served application: what fails is left alone, nothing is lost, and everything says so."""

import re

import pytest

from tests.e2e.harness import Served
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)
WAIT_MAX_S = 40.0


@pytest.fixture
def open_for():
    return "1s"


@pytest.fixture
def server(tmp_path, open_for):
    state = tmp_path / "state"
    state.write_text("down")
    env = {"GUARDED_STATE": str(state), "GUARDED_OPEN_FOR": open_for}
    with Served(tmp_path / "s", "guarded.py", env=env) as served:
        served.state_file = state
        yield served


def breaker_of(server, task):
    return server.get(f"/v1/tasks/{task}").json["breaker"]


def opened(server, task):
    until(lambda: breaker_of(server, task)["trips"] == 1, WAIT_MAX_S, f"the breaker of {task} opens")


def metric(server, name, **labels):
    text = server.get("/metrics").body.decode()
    inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
    found = re.search(rf"^{name}\{{{re.escape(inside)}[^}}]*\}} (\S+)$", text, re.MULTILINE)
    return None if found is None else float(found.group(1))


def test_while_a_task_fails_its_fallback_answers_and_the_results_say_so(server):
    assert breaker_of(server, "small") is None
    assert breaker_of(server, "big") == {
        "breaker": "big",
        "state": "closed",
        "trips": 0,
        "retry_after_s": 0.0,
        "reason": "",
    }
    jobs = [server.submit("big", str(number))["job_id"] for number in range(20)]
    done = server.finals(jobs)
    assert {job["status"] for job in done.values()} == {"COMPLETED"}
    assert sorted(job["result"] for job in done.values()) == sorted(f"small {number}" for number in range(20))
    assert {job["degraded"] for job in done.values()} == {"fallback"}
    answer = server.get(f"/v1/jobs/{jobs[0]}/result")
    assert (answer.json, answer.headers["forebay-degraded"]) == ("small 0", "fallback")
    seen = server.get("/v1/tasks/big").json
    assert seen["fallback"] == "small"
    assert seen["breaker"]["reason"].startswith(
        ("2 bad calls within 60 s", "the probe failed", "open for 1 s")
    )
    assert metric(server, "inference_breaker_trips_total", breaker="big") == 1.0
    assert metric(server, "inference_degraded_total", level="fallback") == 20.0
    assert len(server.runs()) and server.runs()["big"] < 20, "it was left alone"

    server.state_file.write_text("up")

    def recovered():
        job = server.final(server.submit("big", "again")["job_id"])
        return job if job["result"] == "big again" else None

    assert until(recovered, WAIT_MAX_S, "the task itself answers again")["degraded"] is None
    assert breaker_of(server, "big")["state"] == "closed"
    assert metric(server, "inference_breaker_state", breaker="big") == 0.0


def test_a_canned_answer_is_given_at_once(server):
    jobs = [server.submit("canned", str(number))["job_id"] for number in range(10)]
    done = server.finals(jobs).values()
    assert {(job["result"], job["degraded"]) for job in done} == {("later", "fallback")}
    assert server.get("/v1/tasks/canned").json["fallback"] == "(canned answer)"


def test_without_a_fallback_jobs_wait_and_none_is_lost_or_charged_for_the_outage(server):
    jobs = [server.submit("Waits", str(number))["job_id"] for number in range(12)]
    opened(server, "Waits")
    until(
        lambda: server.runs()["waits"] >= 6, WAIT_MAX_S, "some probes failed"
    )  # longer than attempts would last
    assert all(server.job(job_id)["status"] in {"PENDING", "PROCESSING"} for job_id in jobs)
    server.state_file.write_text("up")
    done = server.finals(jobs).values()
    assert {job["status"] for job in done} == {"COMPLETED"}
    assert {job["degraded"] for job in done} == {None}
    assert max(job["attempt"] for job in done) <= 3


def test_a_breaker_inside_a_task_is_shown_for_its_worker_and_its_jobs_wait_uncharged(server):
    jobs = [server.submit("look_up", str(number))["job_id"] for number in range(8)]

    def open_ones():
        rows = [
            (worker["worker"], one)
            for worker in server.get("/v1/workers").json["items"]
            for one in worker["breakers"]
        ]
        return [(worker, one) for worker, one in rows if one["breaker"] == "features" and one["trips"]]

    worker, seen = until(open_ones, WAIT_MAX_S, "a worker says that its breaker opened")[0]
    assert seen["reason"]
    assert metric(server, "inference_breaker_trips_total", breaker="features") >= 1.0
    assert metric(server, "inference_breaker_state", breaker="features", worker=worker) is not None
    server.state_file.write_text("up")
    done = server.finals(jobs).values()
    assert {job["status"] for job in done} == {"COMPLETED"}


def predict(server, task, payload):
    headers = {"Content-Type": "application/json", "X-Request-Timeout": "20"}
    return server.ask("POST", f"/v1/predict/{task}", payload, headers, timeout=40.0)


@pytest.mark.parametrize("open_for", ["8s"])  # the third request of each three comes before the next probe
def test_requests_go_to_what_stands_in_too_and_the_answers_say_so(server):
    assert [predict(server, "big", "a").status for _ in range(2)] == [500, 500]
    answer = predict(server, "big", "a")
    assert (answer.status, answer.json) == (200, "small a")
    assert (answer.headers["forebay-level"], answer.headers["forebay-degraded"]) == ("15", "fallback")

    assert [predict(server, "canned", "a").status for _ in range(2)] == [500, 500]
    answer = predict(server, "canned", "a")
    assert (answer.status, answer.json, answer.headers["forebay-degraded"]) == (200, "later", "fallback")
    assert metric(server, "inference_degraded_total", level="fallback") == 2.0

    assert [predict(server, "Waits", "a").status for _ in range(2)] == [500, 500]
    answer = predict(server, "Waits", "a")
    assert (answer.status, answer.json["code"]) == (503, "breaker_open")
    assert answer.json["retry_after_s"] > 0

    server.state_file.write_text("up")
    until(lambda: predict(server, "big", "b").json == "big b", WAIT_MAX_S, "the task itself answers again")
    until(lambda: predict(server, "canned", "b").json == "canned b", WAIT_MAX_S, "and this one")


@pytest.fixture
def sharing(tmp_path, open_for):
    state = tmp_path / "prices"
    state.write_text("down")
    env = {"SHARING_STATE": str(state), "SHARING_OPEN_FOR": open_for}
    with Served(tmp_path / "s", "sharing.py", env=env) as served:
        served.state_file = state
        yield served


def inside(server, task):
    """Return how the only breaker inside the handlers of a task stands, None before it was used."""
    return next(iter(server.get(f"/v1/tasks/{task}").json["breakers"]), None)


def prices_of(server):
    return [one for worker in server.get("/v1/workers").json["items"] for one in worker["breakers"]]


def all_are(server, state):
    until(
        lambda: len(seen := prices_of(server)) == 3 and {one["state"] for one in seen} == {state},
        WAIT_MAX_S,
        f"it is {state} in all workers",
    )


@pytest.mark.parametrize("open_for", ["60s"])
def test_a_shared_breaker_that_opened_in_one_worker_is_open_in_all_also_in_who_comes_later(sharing):
    assert inside(sharing, "price") is None
    job = sharing.submit("price", "a")["job_id"]
    all_are(sharing, "open")
    runs = sharing.runs()
    assert runs["price"] in {2, 3}, "two bad calls in one worker, and perhaps one in the other"
    quote = sharing.submit("Quote", "a")["job_id"]
    until(
        lambda: (sharing.job(quote)["error"] or {}).get("code") == "breaker_open",
        WAIT_MAX_S,
        "it is put off by a worker that has made no call",
    )
    assert sharing.runs() == runs and sharing.job(quote)["attempt"] <= 1
    seen = until(lambda: inside(sharing, "price"), WAIT_MAX_S, "it is shown")
    assert (seen["state"], seen["workers"], seen["open"], seen["trips"]) == ("open", 2, 2, 1)
    assert seen["shared"] and seen["since"] and 0 < seen["retry_after_s"] <= 61
    assert seen["reason"] == "2 bad calls within 60 s"
    labels = {"breaker": "prices", "task": "price"}
    assert metric(sharing, "inference_task_breaker_open_workers", **labels) == 2.0
    assert metric(sharing, "inference_task_breaker_state", **labels) == 2.0
    assert metric(sharing, "inference_breaker_trips_total", breaker="prices") == 1.0

    sharing.final(sharing.submit("leave", "a")["job_id"])
    until(
        lambda: (
            any(one["restarts"] for one in sharing.get("/v1/workers").json["items"])
            and len(prices_of(sharing)) == 3
        ),
        WAIT_MAX_S,
        "another worker comes",
    )
    all_are(sharing, "open")
    seen = inside(sharing, "price")
    assert (seen["workers"], seen["open"]) == (2, 2)
    assert not sharing.state(job, "scheduled")["cancel_requested"]


@pytest.mark.parametrize("open_for", ["2s"])
def test_the_first_probe_that_goes_well_closes_a_shared_breaker_in_all_workers(sharing):
    job = sharing.submit("price", "a")["job_id"]
    all_are(sharing, "open")
    sharing.state_file.write_text("up")
    before = sharing.runs()["price"]
    assert sharing.final(job)["status"] == "COMPLETED"
    all_are(sharing, "closed")
    assert sharing.runs()["price"] == before + 1, "one probe"
    assert sum(one["trips"] for one in prices_of(sharing)) == 1
    assert (inside(sharing, "price")["state"], inside(sharing, "price")["open"]) == ("closed", 0)
