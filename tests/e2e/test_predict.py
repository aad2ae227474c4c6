"""Requests against real processes: answered, refused, late, and when workers and the server go."""

import json
import os
import signal
import threading

import pytest

from tests.e2e.harness import WAIT_MAX_S, Served
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One for those tests that leave it as it was; no job is ever submitted to it."""
    with Served(tmp_path_factory.mktemp("predict"), workers=1) as server:
        yield server
        assert server.stop() == 0


def predict(server, task, payload, **headers):
    headers = {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
    return server.ask("POST", f"/v1/predict/{task}", json.dumps(payload).encode(), headers, timeout=60.0)


def beside(action):
    """Run it in a thread; return a function that waits for what it returned."""
    found = []
    thread = threading.Thread(target=lambda: found.append(action()))
    thread.start()

    def wait():
        thread.join(60.0)
        assert found, "no answer in a minute"
        return found[0]

    return wait


def requests_of(server, task):
    return server.get(f"/v1/queues/{task}").json["requests"]


def test_a_request_is_answered_and_leaves_nothing_behind(server):
    answer = predict(server, "echo", {"a": 1})
    assert (answer.status, answer.json) == (200, {"a": 1})
    assert server.get("/v1/jobs").json["items"] == []
    shown = server.get("/v1/queues/echo").json["requests"]
    assert (shown["waiting"], shown["running"]) == (0, 0)
    metrics = server.get("/metrics").body.decode()
    assert 'inference_slo_good_total{task="echo"} 1.0' in metrics


def test_a_late_one_is_told_at_its_deadline_and_its_worker_lives_on(tmp_path):
    with Served(
        tmp_path, workers=1
    ) as server:  # of its own: a nap that was seen before is refused at the door
        pids = server.children()
        answer = predict(server, "nap", ["a", 2.5], x_request_timeout="1s")
        assert (answer.status, answer.json["code"]) == (504, "deadline_passed")
        until(lambda: "end a" in server.ledger_path.read_text(), WAIT_MAX_S, "it ran on")
        assert server.children() == pids
        server.stop()


def test_a_request_whose_worker_is_killed_runs_again_while_there_is_time(server):
    wait = beside(lambda: predict(server, "nap", ["b", 1.0], x_request_timeout="60"))
    server.started("b")
    os.kill(server.children()[0], signal.SIGKILL)
    answer = wait()
    assert answer.status == 200, answer
    assert answer.json[:2] == ["b", 2]


def test_a_stop_answers_what_was_let_in_and_refuses_the_rest(tmp_path):
    go = tmp_path / "go"
    with Served(tmp_path, "gated.py", workers=1) as server:
        first = beside(lambda: predict(server, "hold", ["c", str(go)], x_request_timeout="60"))
        server.started("c")
        second = beside(lambda: predict(server, "hold", ["d", str(go)], x_request_timeout="60"))
        until(lambda: requests_of(server, "hold")["waiting"] == 1, WAIT_MAX_S, "the second waits")
        server.signal(signal.SIGTERM)
        until(lambda: server.get("/readyz").status == 503, WAIT_MAX_S, "draining")
        assert predict(server, "echo", 1).status == 503
        go.touch()
        assert first().status == 200 and second().status == 200
        assert server.wait(40) == 0


def test_a_client_that_hangs_up_is_not_worked_for(tmp_path):
    go = tmp_path / "go"
    with Served(tmp_path, "gated.py", workers=1) as server:
        first = beside(lambda: predict(server, "hold", ["e", str(go)], x_request_timeout="60"))
        server.started("e")
        connection = server.connect()
        body = json.dumps(["f", str(go)]).encode()
        headers = {"Content-Type": "application/json", "X-Request-Timeout": "60"}
        connection.request("POST", "/v1/predict/hold", body, headers)
        until(lambda: requests_of(server, "hold")["waiting"] == 1, WAIT_MAX_S, "it waits")
        connection.close()
        until(lambda: requests_of(server, "hold")["waiting"] == 0, WAIT_MAX_S, "it is gone")
        assert requests_of(server, "hold")["running"] == 1, "the first one still runs"
        go.touch()
        assert first().status == 200
        assert "f" not in {line[1] for line in server.ledger()}
        server.stop()


def test_a_generator_is_heard_while_it_works(tmp_path):
    with Served(tmp_path, "live.py", workers=1) as server:
        answer = predict(server, "words", [4, 0.05, -1], accept="text/event-stream")
        assert answer.status == 200, answer
        text = answer.body.decode()
        assert text.count("event: partial") >= 1 and text.index("event: partial") < text.index("event: done")
        server.stop()
