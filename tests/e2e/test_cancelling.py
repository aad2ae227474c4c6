"""Many jobs cancelled at once, by the client and on the command line, against a real server."""

import os
import subprocess
import sys

import pytest

import forebay
from tests.e2e.harness import Served

pytestmark = pytest.mark.timeout(60)


def command(url, *argv):
    env = {**os.environ, "FOREBAY_URL": url}
    argv = [sys.executable, "-m", "forebay", "jobs", "cancel", *argv]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, env=env)
    return done.returncode, done.stdout + done.stderr


def test_a_task_is_emptied_by_filter_by_ids_and_as_a_whole(tmp_path):
    with Served(tmp_path) as server:
        url = f"http://127.0.0.1:{server.port}"
        server.ask("POST", "/v1/queues/echo/pause")
        with forebay.Client(url) as client:
            jobs = [client.submit("echo", n, metadata={"run": str(n % 3)}) for n in range(12)]
            assert client.cancel_many(task="echo", metadata={"run": "0"})["cancelled"] == 4
            counts = client.cancel_many(iter([jobs[0].job_id, jobs[1].job_id, "no such job"]))
            found = {"cancelled": 1, "requested": 0, "already": 1, "final": 0, "unknown": 1}
            assert counts == found
            code, told = command(url, "--task", "echo")
            assert code == 2 and "--all" in told
            code, told = command(url, jobs[2].job_id, "--all")
            assert code == 2 and "not both" in told
            code, told = command(url, "--metadata", "run=1")
            assert (code, told.splitlines()[0]) == (0, "3 cancelled, 0 run and were asked to stop")
            code, told = command(url, "--task", "echo", "--all", "--json")
            assert code == 0 and '"cancelled": 4' in told
            assert {job.status for job in client.list(limit=50)} == {"CANCELLED"}
