"""An upgrade with jobs of the old version waiting: run, wait for the old code, or end with a stable code."""

import os
import subprocess
import sys

import pytest

from tests.e2e.harness import Served

pytestmark = pytest.mark.timeout(120)
TASKS = ("runs", "waits", "fails")


def explained(server, job_id):
    command = [
        sys.executable,
        "-m",
        "forebay",
        "jobs",
        "explain",
        job_id,
        "--url",
        f"http://127.0.0.1:{server.port}",
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=dict(os.environ)).stdout


def test_jobs_of_the_old_version_run_wait_or_end_and_new_ones_run(tmp_path):
    with Served(tmp_path, "versions.py", env={"APP_VERSION": "1"}) as server:
        for task in TASKS:
            server.ask("POST", f"/v1/queues/{task}/pause")
        old = {task: server.submit(task, "old")["job_id"] for task in TASKS}
        assert server.stop() == 0
    with Served(tmp_path, "versions.py", env={"APP_VERSION": "2"}) as server:
        for task in TASKS:
            server.ask("POST", f"/v1/queues/{task}/resume")
        assert server.final(old["runs"])["result"] == ["old", "2"]
        assert server.final(old["fails"])["error"]["code"] == "version_gone"
        waiting = server.state(old["waits"], "scheduled")
        assert waiting["error"]["code"] == "version_waits" and waiting["attempt"] == 0
        assert "waits for a worker with version 1; this one has 2" in explained(server, old["waits"])
        new = {task: server.submit(task, "new")["job_id"] for task in TASKS}
        assert [server.final(new[task])["result"] for task in TASKS] == [["new", "2"]] * 3
        assert server.stop() == 0
    with Served(tmp_path, "versions.py", env={"APP_VERSION": "1"}) as server:
        done = server.final(old["waits"])
        assert (done["result"], done["attempt"]) == (["old", "1"], 1)
        assert server.stop() == 0
