"""Forebay in front of a model server that is a process of its own: storms, outages, streams, keys."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import Served
from tests.ports import free_port
from tests.waiting import until

pytestmark = pytest.mark.timeout(150)
WAIT_MAX_S = 40.0


class Model:
    def __init__(self, directory):
        self.mode_file, self.log_file = directory / "mode", directory / "log"
        self.mode("good")
        self.log_file.touch()
        self.port = free_port()
        self.process = None

    def start(self):
        program = str(Path(__file__).with_name("model_server.py"))
        command = [sys.executable, program, str(self.port), str(self.mode_file), str(self.log_file)]
        self.process = subprocess.Popen(command)
        until(self.listens, WAIT_MAX_S, "the model server listens")
        return self

    def listens(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1.0):
            return True
        return False

    def mode(self, text):
        new = self.mode_file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.mode_file)

    def gauge(self, value):
        new = self.mode_file.with_name("gauge.new")
        new.write_text(str(value))
        new.replace(self.mode_file.with_name("gauge"))

    def asked(self):
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)


@pytest.fixture
def model(tmp_path):
    one = Model(tmp_path).start()
    yield one
    one.kill()


@pytest.fixture
def server(tmp_path, model):
    url = f"http://127.0.0.1:{model.port}/v1/chat/completions"
    with Served(tmp_path / "s", "upstreams.py", env={"UPSTREAM_URL": url}) as served:
        yield served


def test_jobs_are_answered_by_the_server_behind_and_its_key_is_told_to_nobody_else(server, model):
    job = server.submit("llm", {"prompt": "hi"}, wait=20)
    assert (job["status"], job["result"], job["degraded"]) == ("COMPLETED", {"echo": {"prompt": "hi"}}, None)
    assert model.asked()[0]["auth"] == "Bearer s3cret-key"
    task = server.get("/v1/tasks/llm").json
    assert (task["kind"], task["description"], task["timeout_s"]) == ("upstream", "The model server.", 20.0)
    (row,) = [row for row in server.get("/v1/workers").json["items"] if row["task"] == "llm"]
    assert (row["device"], row["state"], row["pid"]) == ("upstream", "ready", None)
    for path in ("/v1/tasks", "/v1/workers", "/metrics", "/openapi.json", f"/v1/jobs/{job['job_id']}"):
        assert b"s3cret-key" not in server.get(path).body, path
    assert "s3cret-key" not in server.log
    assert server.stop() == 0


def test_a_streamed_answer_is_parts_and_a_refused_payload_is_a_dead_letter(server):
    job = server.submit("llm", {"prompt": "one two three", "stream": True}, wait=20)
    assert job["result"] == [{"delta": "one"}, {"delta": "two"}, {"delta": "three"}]
    refused = server.submit("llm", "bad", wait=20)
    assert (refused["status"], refused["attempt"]) == ("FAILED", 1)
    assert refused["error"]["code"] == "upstream_refused"
    assert "no such prompt" in refused["error"]["message"]


@pytest.mark.parametrize("status", [429, 503])
def test_a_storm_of_not_now_costs_no_attempt_and_is_not_met_with_another(server, model, status):
    model.mode(f"busy {status}")
    jobs = [server.submit("llm", number)["job_id"] for number in range(60)]
    until(lambda: len(model.asked()) >= 9, WAIT_MAX_S, "it was asked and said no, again and again")
    assert len(model.asked()) < 60, "each job would have been one call"
    model.mode("good")
    done = server.finals(jobs, max_s=90.0).values()
    assert {job["status"] for job in done} == {"COMPLETED"}
    assert {job["attempt"] for job in done} == {1}


def test_a_server_that_is_killed_and_comes_back_finds_its_jobs_waiting(server, model):
    assert server.submit("llm", 0, wait=20)["status"] == "COMPLETED"
    model.kill()
    jobs = [server.submit("llm", number)["job_id"] for number in range(20)]
    until(lambda: server.get("/v1/tasks/llm").json["breaker"]["trips"], WAIT_MAX_S, "its breaker opens")
    model.start()
    done = server.finals(jobs, max_s=90.0).values()
    assert {job["status"] for job in done} == {"COMPLETED"}
    assert {job["attempt"] for job in done} == {1}, "it was never there: nothing is charged"


def test_a_fixed_concurrency_is_kept_and_a_server_error_is_a_failed_attempt(server, model):
    model.mode("slow 0.05")
    jobs = [server.submit("two", number)["job_id"] for number in range(30)]
    assert {job["status"] for job in server.finals(jobs).values()} == {"COMPLETED"}
    assert max(one["out"] for one in model.asked()) == 2
    model.mode("broken")
    job = server.final(server.submit("two", 1, attempts_max=1)["job_id"])
    assert (job["status"], job["error"]["code"]) == ("FAILED", "upstream_failed")
    assert "out of memory" in job["error"]["message"]


def test_while_its_breaker_is_open_the_canned_answer_is_given(server, model):
    model.mode("broken")
    jobs = [server.submit("spare", number)["job_id"] for number in range(10)]
    done = server.finals(jobs).values()
    assert {json.dumps(job["result"]) for job in done} == {'{"spare": true}'}
    assert {job["degraded"] for job in done} == {"fallback"}


def test_a_call_can_be_cancelled_and_ends_with_its_deadline(server, model):
    model.mode("slow 15")
    job = server.submit("llm", 1)
    server.state(job["job_id"], "running")
    assert server.ask("DELETE", f"/v1/jobs/{job['job_id']}").status == 202
    assert server.final(job["job_id"])["status"] == "CANCELLED"
    late = server.submit("llm", 2, deadline=2.0)
    assert server.final(late["job_id"])["status"] == "EXPIRED"


def test_a_drain_lets_a_call_finish(server, model):
    model.mode("slow 2")
    job = server.submit("llm", 1)
    server.state(job["job_id"], "running")
    assert server.stop() == 0
    server.start()
    assert server.job(job["job_id"])["status"] == "COMPLETED"


def test_a_request_to_an_upstream_that_says_not_now_is_told_when_to_come_back(server, model):
    def predict(payload):
        headers = {"Content-Type": "application/json", "X-Request-Timeout": "20"}
        return server.ask("POST", "/v1/predict/two", payload, headers, timeout=40.0)

    assert predict("hi").json == {"echo": "hi"}
    model.mode("busy 429")
    answer = predict("hi")
    assert (answer.status, answer.json["code"]) == (503, "upstream_busy")
    assert int(answer.headers["retry-after"]) >= 1


def test_while_the_server_behind_says_that_it_is_full_nothing_is_called_and_all_waits(server, model):
    def shown(name):
        found = re.search(
            rf'^{name}{{task="gated"}} (\S+)$', server.get("/metrics").body.decode(), re.MULTILINE
        )
        return None if found is None else float(found[1])

    assert shown("inference_upstream_gate_closed") == 0.0
    model.gauge(12)
    assert server.submit("gated", 0, wait=20)["status"] == "COMPLETED", (
        "it begins before the first look is back"
    )
    until(lambda: shown("inference_upstream_gate_closed") == 1.0, WAIT_MAX_S, "its gate closes")
    assert shown("inference_upstream_saturation") == 12.0
    job = server.submit("gated", 1)["job_id"]
    headers = {"Content-Type": "application/json", "X-Request-Timeout": "2"}
    answer = server.ask("POST", "/v1/predict/gated", 2, headers, timeout=40.0)
    assert (answer.status, answer.json["code"]) == (503, "upstream_busy"), "let in or not, it is not called"
    assert "its gate is closed: 12 (opens at 5)" in answer.json["detail"]
    assert int(answer.headers["retry-after"]) >= 1
    assert len(model.asked()) == 1
    model.gauge(7)
    until(lambda: shown("inference_upstream_saturation") == 7.0, WAIT_MAX_S, "it looks on")
    assert shown("inference_upstream_gate_closed") == 1.0
    model.gauge(5)
    done = server.final(job)
    assert (done["status"], done["attempt"]) == ("COMPLETED", 1)
    for event, reason in (("gate_closed", "12 (closes at 10)"), ("gate_open", "5 (opens at 5)")):
        until(lambda event=event: event in server.log, WAIT_MAX_S, f"{event} is in the log")
        assert reason in server.log
