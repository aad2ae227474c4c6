"""Faults of growth that queues and model servers really had (F080, F119), each with real processes."""

import psutil
import pytest

from tests.e2e.harness import SHORT, Served
from tests.e2e.test_faults_alone import small_disk  # noqa: F401
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
WAIT_MAX_S = 90.0


def test_f080_a_model_that_leaks_is_replaced_between_jobs_and_none_is_lost_or_done_twice(tmp_path):
    count, most_b = 120, 120 * 1024 * 1024
    with Served(tmp_path, "leaky.py", workers=2) as server:
        jobs = [server.submit("Leaks", number)["job_id"] for number in range(count)]
        done = server.finals(jobs, WAIT_MAX_S).values()
        assert {(job["status"], job["attempt"]) for job in done} == {("COMPLETED", 1)}
        assert set(server.runs().values()) == {1} and len(server.runs()) == count

        def small():
            try:
                sizes = [psutil.Process(pid).memory_info().rss for pid in server.children()]
            except psutil.NoSuchProcess:
                return False  # it has just been replaced
            return len(sizes) == 2 and max(sizes) < most_b

        until(small, WAIT_MAX_S, "600 MB were leaked, and no process holds what it may not")
        workers = server.get("/v1/workers").json["items"]
        assert sum(one["restarts"] for one in workers) >= 1 and {one["last_crash"] for one in workers} == {
            None
        }
        assert "recycled" in server.log and server.submit("Leaks", 1000, wait=20)["status"] == "COMPLETED"


def test_f119_a_store_that_its_backlog_fills_refuses_and_empties_by_itself(tmp_path, small_disk):  # noqa: F811
    env = SHORT | {"FOREBAY_RETENTION": "5s"}
    with Served(tmp_path, "faults.py", workers=2, env=env, data=str(small_disk / "data")) as server:
        server.ask("POST", "/v1/queues/large/pause")
        accepted, refused = [], []
        while len(refused) < 20:
            answer = server.ask("POST", "/v1/jobs", {"task": "large", "payload": ["x", 1, "y" * 200_000]})
            (accepted if answer.status == 202 else refused).append(answer)
        assert {(answer.status, answer.json["code"]) for answer in refused} == {(507, "store_full")}
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        assert len(accepted) >= 100 and "no new work takes the last" in refused[0].json["detail"]
        server.ask("POST", "/v1/queues/large/resume")
        until(lambda: server.get("/v1/queues/large").json["open"] == 0, WAIT_MAX_S, "it empties by itself")
        assert server.runs()["x"] == len(accepted), "each of them ran"
        again = {"task": "large", "payload": ["x", 1, "y"]}
        until(
            lambda: server.ask("POST", "/v1/jobs", again).status == 202, WAIT_MAX_S, "it takes new work again"
        )
        assert server.stop() == 0
