"""How soon work that was running runs again: after the death of a child, and of the whole server."""

import os
import signal
import time

import pytest

from tests.e2e.harness import Served, gone
from tests.e2e.test_kill_campaign import told
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timed, pytest.mark.timeout(300)]
CHILD_BAR_S, SERVER_BAR_S = 0.6, 2.0
NOISE = 1.5  # the bars are read from the printed figures on a quiet machine; here they catch what is broken
BUSY = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # others on this machine make all of it slower


def second_start(server, name, killed_at, pid, max_s=30.0):
    """Return how long after the kill the job was started by another process."""

    def look():
        later = [line[4] for line in server.ledger() if line[:2] == ("start", name) and line[3] != pid]
        return later and later[0] - killed_at

    return until(look, max_s, f"{name} runs again")


def test_f007_f009_f039_work_of_a_dead_child_runs_elsewhere_at_once(tmp_path):
    """Members of a batch, whose death charges nobody, and a job alone, which waits out its first backoff."""
    batched, alone = [], []
    for turn in range(3):  # a fresh server each time: deaths in a row are answered more slowly
        with Served(tmp_path / str(turn), "recovery.py", workers=2) as server:
            for task, times in (("Pair", batched), ("single", alone), ("Pair", batched)):
                name = f"{task}.{len(times)}"
                verdicts = server.submit_many(
                    [
                        {"task": task, "payload": [f"{name}.{m}", 0.4]}
                        for m in range(2 if task == "Pair" else 1)
                    ]
                )
                server.started(f"{name}.0")
                pid = next(line[3] for line in server.ledger() if line[1] == f"{name}.0")
                at = time.time()
                os.kill(pid, signal.SIGKILL)
                times.append(second_start(server, f"{name}.0", at, pid))
                records = server.finals([v["job_id"] for v in verdicts])
                assert {record["status"] for record in records.values()} == {"COMPLETED"}
                story = str([record["timeline"] for record in records.values()])
                assert "worker_lost" in story, story
            server.stop()
    print(told("child killed -> batch members run elsewhere", batched))
    print(told("child killed -> a job alone runs elsewhere (backoff 100 ms)", alone))
    assert sorted(batched)[len(batched) // 2] < CHILD_BAR_S * BUSY * NOISE, batched
    assert sorted(alone)[len(alone) // 2] < CHILD_BAR_S * BUSY * NOISE, alone


def test_f007_f009_work_of_a_dead_server_runs_again_when_it_is_started(tmp_path):
    """Whatever the timeout (10 minutes) and the lease (30 s)."""
    times = []
    with Served(tmp_path, "recovery.py", workers=2) as server:
        for n in range(5):
            job = server.submit("single", [f"s{n}", 0.5])
            server.started(f"s{n}")
            pid = next(line[3] for line in server.ledger() if line[1] == f"s{n}")
            children = server.children()
            at = time.time()
            server.kill()
            until(
                lambda pids=children: all(gone(one) for one in pids), 1.0, "children dead with their parent"
            )
            server.start(ready=False)
            times.append(second_start(server, f"s{n}", at, pid))
            assert server.final(job["job_id"])["status"] == "COMPLETED"
        server.stop()
    print(told("server killed -> started -> its job runs again", times))
    assert sorted(times)[len(times) // 2] < SERVER_BAR_S * BUSY * NOISE, times
