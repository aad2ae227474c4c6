"""Real servers on one store: they share work, outlive each other and the server of the store."""

import pytest

from tests.e2e.harness import SHORT, Served
from tests.waiting import until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]
WAIT_MAX_S = 90.0


def test_two_servers_share_a_queue_and_one_outlives_the_other(server, tmp_path):
    env, gate = {"FOREBAY_BROKER": server.url("served"), **SHORT}, tmp_path / "gate"
    with (
        Served(tmp_path / "a", "gated.py", env=env, workers=1) as first,
        Served(tmp_path / "b", "gated.py", env=env, workers=1) as second,
    ):
        jobs = [{"task": "hold", "payload": [f"n{n}", str(gate)], "attempts_max": 5} for n in range(24)]
        ids = [verdict["job_id"] for verdict in first.submit_many(jobs)]
        until(lambda: first.runs() and second.runs(), WAIT_MAX_S, "both work")
        first.kill()  # with jobs in hand: none of them can end
        gate.touch()
        records = second.finals(ids, WAIT_MAX_S)
        assert {record["status"] for record in records.values()} == {"COMPLETED"}
        assert second.get("/metrics").body.count(b"inference_queue_length{") >= 1
        assert second.stop() == 0


def test_submissions_are_answered_503_while_the_server_is_away_and_work_goes_on_after(own, tmp_path):
    with Served(tmp_path, env={"FOREBAY_BROKER": own.url()}) as served:
        assert served.submit("echo", "before", wait=30)["status"] == "COMPLETED"
        own.halt(own.ENDS["crash"])
        answer = served.ask("POST", "/v1/jobs", {"task": "echo", "payload": "x"}, timeout=60.0)
        assert answer.status == 503 and answer.json["code"] == "store_unavailable", answer
        assert "retry-after" in answer.headers and f"127.0.0.1:{own.port}" in answer.json["detail"]
        assert served.get("/healthz").status == 200
        own.start()

        def taken():
            again = served.ask(
                "POST", "/v1/jobs", {"task": "echo", "payload": "x"}, {"Prefer": "wait=10"}, timeout=60.0
            )
            return again.json if again.status in {200, 202} else None

        job = until(taken, WAIT_MAX_S, "taken again")
        assert served.final(job["job_id"], WAIT_MAX_S)["status"] == "COMPLETED"
        assert served.process.poll() is None


def test_each_server_counts_the_replicas_of_all_in_what_it_tells(server, tmp_path):
    server.drop("served_eta")
    env = {"FOREBAY_BROKER": server.url("served_eta"), **SHORT}

    def told(one):
        task = one.get("/v1/tasks/echo").json
        return task, one.get("/v1/queues/echo").json["rates"]["capacity_per_s"]

    with Served(tmp_path / "a", "gated.py", env=env, workers=1) as first:
        done = [first.submit("echo", n, wait=30) for n in range(5)]
        assert {job["status"] for job in done} == {"COMPLETED"}
        _, alone = until(lambda: told(first)[1] and told(first), WAIT_MAX_S, "it measured")
        with Served(tmp_path / "b", "gated.py", env=env, workers=3) as second:
            until(lambda: (told(first)[1] or 0) > 2.5 * alone, WAIT_MAX_S, "it counts three more")
            until(lambda: told(second)[1], WAIT_MAX_S, "the other one knows what was measured elsewhere")
            assert second.stop() == 0
        until(lambda: (told(first)[1] or 0) < 1.5 * alone, WAIT_MAX_S, "they are gone")
