"""Pipelines under `forebay serve`: one set of replicas before frames, requests and jobs."""

import json
import os
import signal

import pytest

from tests.e2e.harness import Served
from tests.e2e.test_predict import predict
from tests.waiting import until

pytest.importorskip("numpy")
pytestmark = pytest.mark.timeout(180)
WAIT_MAX_S = 60.0
PIXELS = 48 * 64 * 3


@pytest.fixture
def server(tmp_path):
    with Served(tmp_path / "s", "streamed.py", workers=1) as served:
        yield served


def frames(server, what="frame"):
    """Return what the sinks heard: (number of the frame, its sum, pid of who computed it), in order."""
    heard = [(name.split("="), pid) for kind, name, pid, *_ in server.ledger() if kind == what]
    return [(int(number), int(total), pid) for (number, total), pid in heard]


def more_frames(server, count=5):
    """Wait for so many frames more; return all."""
    known = len(frames(server))
    until(lambda: len(frames(server)) >= known + count, WAIT_MAX_S, f"{count} frames more")
    return frames(server)


def shown(server, stream):
    """Return a stream as GET /v1/streams shows it, once it does."""
    return until(
        lambda: next((s for s in server.get("/v1/streams").json["items"] if s["stream"] == stream), None),
        WAIT_MAX_S,
        f"{stream} is shown",
    )


def in_metrics(server, label):
    """Return the metrics once there is something with this label."""
    text = server.get("/metrics").body.decode()
    return text if label in text else None


def test_frames_requests_and_jobs_are_served_by_the_same_process(server):
    more_frames(server)
    answer = predict(server, "Detect", {"image": [1, 2, 3]}, X_Request_Timeout="30")
    job = server.final(server.submit("Detect", [4, 5])["job_id"], WAIT_MAX_S)
    seen = more_frames(server)
    assert (answer.json["sum"], job["result"]["sum"]) == (6, 9)
    assert {pid for _, _, pid in seen} == {answer.json["pid"], job["result"]["pid"]}
    assert all(total == number % 4 * PIXELS for number, total, _ in seen)
    numbers = [number for number, _, _ in seen]
    assert numbers == sorted(set(numbers))
    stream = shown(server, "door")
    assert stream["pipeline"] == "door"
    assert stream["sent"] == stream["served"] + sum(stream["dropped"].values()) + stream["in_flight"]
    text = until(
        lambda: in_metrics(server, 'stream="door/door"'),
        WAIT_MAX_S,
        "the stream is in the metrics",
    )
    assert 'inference_queue_length{task="Detect"}' in text
    assert 'inference_queue_length{task="door/Detect"}' in text


def test_a_pipeline_of_json_values_ends_by_itself_and_a_failure_costs_its_frame_alone(server):
    until(lambda: len(frames(server, "text")) == 2, WAIT_MAX_S, "both texts served")
    assert [(number, total) for number, total, _ in frames(server, "text")] == [(0, 0), (2, 4)]
    assert "plain-json" not in server.log.split("pipeline_restarted")[-1]


def test_a_pipeline_that_is_killed_is_started_again_and_the_server_serves_on(server):
    more_frames(server)
    (pid,) = [pid for pid in server.living() if hosts(pid, "door")]
    os.kill(pid, signal.SIGKILL)
    until(lambda: any(hosts(one, "door") and one != pid for one in server.living()), WAIT_MAX_S, "again")
    again = [number for number, _, _ in more_frames(server)]
    assert again != sorted(set(again))  # a new process numbers from 0
    assert predict(server, "Detect", [1], X_Request_Timeout="30").json["sum"] == 1
    assert "pipeline_restarted" in server.log


def test_frames_go_on_after_the_replica_that_served_them_is_killed(server):
    (*_, before) = more_frames(server)[-1]
    os.kill(before, signal.SIGKILL)
    until(lambda: frames(server)[-1][2] != before, WAIT_MAX_S, "another process serves frames")
    stream = shown(server, "door")
    assert stream["sent"] == stream["served"] + sum(stream["dropped"].values()) + stream["in_flight"]


def test_a_stage_that_is_no_task_of_the_app_is_said_and_nothing_else_suffers(server):
    until(
        lambda: "pipeline lost: stage Nobody: the App has no task Nobody" in server.log,
        WAIT_MAX_S,
        "the line",
    )
    assert predict(server, "named", {"name": "x"}, X_Request_Timeout="30").json == "x"


def test_frames_that_are_sent_to_the_server_go_through_its_pipeline(server):
    header = {"Forebay-Frame": json.dumps({"shape": [2, 3, 1]}), "Content-Type": "application/octet-stream"}

    def send(body=bytes(range(6)), path="/v1/streams/gate", method="PUT", headers=header):
        return server.ask(method, path, body, headers, timeout=30.0)

    answer = until(
        lambda: a if (a := send()).status == 202 else None, WAIT_MAX_S, "the pipeline takes frames"
    )
    assert (answer.json["stream"], answer.json["taken"], answer.json["every"]) == ("gate", True, 1)
    until(lambda: frames(server, "pushed"), WAIT_MAX_S, "the frame is served")
    assert {total for _, total, _ in frames(server, "pushed")} == {15}
    assert shown(server, "gate")["pipeline"] == "gate"
    wrong = send(headers={**header, "Forebay-Frame": json.dumps({"shape": [7]})})
    assert (wrong.status, wrong.json["code"]) == (422, "invalid")
    assert send(path="/v1/streams/yard").status == 404
    assert send(body=b"x" * 110_000).status == 413
    assert send(method="DELETE").status in {404, 405}


def hosts(pid, pipeline):
    """Say whether this process runs the pipeline."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return False
    return b"forebay.pipeline.hosted" in words and pipeline.encode() in words
