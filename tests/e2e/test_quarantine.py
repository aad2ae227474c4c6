"""Real crashes put their input into quarantine: no copy costs another worker, over restarts, until release."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.harness import SHORT, Served
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
DEATHS = 3  # by default one more than one job may have


def forebay(server, *argv):
    command = [sys.executable, "-m", "forebay", *argv, "--url", f"http://127.0.0.1:{server.port}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=dict(os.environ))


def condemn(server):
    """Submit an input until it is refused; return the ids of what was accepted, and the refusal."""
    ids = []
    for _ in range(DEATHS + 1):
        answer = server.ask("POST", "/v1/jobs", {"task": "read", "payload": "deadly"})
        if answer.status != 202:
            return ids, answer
        ids.append(answer.json["job_id"])
        server.final(ids[-1], 60.0)
    raise AssertionError("it was never refused")


def test_copies_of_an_input_that_killed_workers_are_refused_over_restarts_until_it_is_released(tmp_path):
    with Served(tmp_path, "lethal.py", workers=2, env=SHORT) as server:
        ids, refused = condemn(server)
        assert len(ids) == 2 and server.runs()["deadly"] == DEATHS, server.runs()
        assert (refused.status, refused.json["code"]) == (422, "quarantined"), refused
        assert refused.json["deaths"] == DEATHS and refused.json["job_id"] == ids[1]
        ends = [server.get(f"/v1/dead-letters/{job_id}").json for job_id in ids]
        assert [end["error"]["code"] for end in ends] == ["worker_lost", "quarantined"]
        assert [end["cause"] for end in ends] == ["poison", "poison"]
        assert "input_quarantined" in server.log
        server.kill()
        server.start()
        again = server.ask("POST", "/v1/jobs", {"task": "read", "payload": "deadly"})
        assert (again.status, again.json["job_id"]) == (422, ids[1]), again
        assert server.submit("read", "fine", wait=20)["status"] == "COMPLETED"
        listed = forebay(server, "dead-letters", "quarantine", "--json")
        (row,) = json.loads(listed.stdout)
        assert row["fingerprint"] == refused.json["fingerprint"] and row["deaths"] == DEATHS
        redriven = forebay(server, "dead-letters", "redrive", ids[0])
        assert redriven.returncode == 1 and "quarantine" in redriven.stderr, redriven
        released = forebay(server, "dead-letters", "release", row["fingerprint"])
        assert (released.returncode, released.stdout) == (0, "1 released\n"), released
        runs = server.runs()["deadly"]
        assert server.final(server.submit("read", "deadly")["job_id"], 60.0)["status"] == "FAILED"
        assert server.runs()["deadly"] == runs + 2, "its deaths were forgotten: one job may have two"
        assert server.stop() == 0


def test_many_copies_at_once_cost_few_workers_and_no_innocent(tmp_path):
    with Served(tmp_path, "lethal.py", workers=2, env=SHORT) as server:
        lines = [{"task": "read", "payload": f"good.{n}"} for n in range(60)]
        for n in range(20):
            lines.insert(4 * n, {"task": "read", "payload": "deadly"})
        verdicts = server.submit_many(lines, expect=(202, 422))
        taken = [
            (line["payload"], verdict["job_id"])
            for line, verdict in zip(lines, verdicts, strict=True)
            if verdict["status"] == 202
        ]
        ends = server.finals([job_id for _, job_id in taken], 120.0)
        good = [ends[job_id]["status"] for payload, job_id in taken if payload != "deadly"]
        assert good == ["COMPLETED"] * 60
        deadly = [ends[job_id]["error"]["code"] for payload, job_id in taken if payload == "deadly"]
        assert deadly and set(deadly) <= {"worker_lost", "quarantined"}
        deaths = sum(worker["restarts"] for worker in server.get("/v1/workers").json["items"])
        # Those that ran when the last death was stored may still have died: one more for each replica.
        assert DEATHS <= server.runs()["deadly"] <= DEATHS + 2 + len(deadly), server.runs()
        assert deaths <= DEATHS + 2, deaths
        assert server.stop() == 0


def test_a_forced_redrive_gets_one_try_and_another_version_starts_clean(tmp_path):
    with Served(tmp_path, "lethal.py", workers=1, env=SHORT) as server:
        ids, _ = condemn(server)
        forced = forebay(server, "dead-letters", "redrive", ids[0], "--force", "--json")
        assert forced.returncode == 0, forced
        made = json.loads(forced.stdout)["items"][0]["answer"]["redriven_as"]
        runs = server.runs()["deadly"]
        assert server.final(made, 60.0)["error"]["code"] == "quarantined"
        assert server.runs()["deadly"] - DEATHS == 1 and runs <= DEATHS + 1, (
            "it ran once, and was not tried again"
        )
        assert server.stop() == 0
        server.extra["APP_VERSION"] = "2"
        server.start()
        assert server.submit("read", "deadly", expect=(202,))["job_id"], "another version is another input"
        (row,) = server.get("/v1/quarantine").json["items"]
        assert (row["version"], row["deaths"]) == ("1", DEATHS + 1)


def quarantined(server):
    return server.get("/v1/quarantine").json["items"]


def predict(server, task, page):
    headers = {"Content-Type": "application/json", "X-Request-Timeout": "60"}
    return server.ask("POST", f"/v1/predict/{task}", json.dumps(page).encode(), headers, timeout=90.0)


def test_requests_that_kill_workers_put_their_input_into_quarantine_for_requests_and_jobs(tmp_path):
    with Served(tmp_path, "lethal.py", workers=2, env=SHORT) as server:
        first, second = predict(server, "read", "deadly"), predict(server, "read", "deadly")
        assert first.json["code"] == "worker_lost", first
        assert second.json["code"] in {"worker_lost", "quarantined"}, second
        until(lambda: quarantined(server), 30, "it is in quarantine")
        runs = server.runs()["deadly"]
        # The second try may have begun while the last death was being stored.
        assert DEATHS <= runs <= DEATHS + 1, runs
        refused = predict(server, "read", "deadly")
        assert (refused.status, refused.json["code"], refused.json["deaths"]) == (422, "quarantined", runs)
        job = server.ask("POST", "/v1/jobs", {"task": "read", "payload": "deadly"})
        assert (job.status, job.json["code"]) == (422, "quarantined"), job
        assert server.runs()["deadly"] == runs, "no copy costs another worker"
        assert predict(server, "read", "fine").json == "fine"
        server.kill()
        server.start()
        assert predict(server, "read", "deadly").json["code"] == "quarantined", "it is stored"
        released = forebay(server, "dead-letters", "release", refused.json["fingerprint"])
        assert released.returncode == 0, released
        assert predict(server, "read", "deadly").json["code"] == "worker_lost"
        assert server.stop() == 0


def test_of_a_batch_of_requests_the_deadly_one_alone_is_blamed(tmp_path):
    with Served(tmp_path, "lethal.py", workers=1, env=SHORT) as server:
        pages = [*(f"good.{n}" for n in range(5)), "deadly"]
        with ThreadPoolExecutor(len(pages)) as pool:
            answers = dict(
                zip(pages, pool.map(lambda page: predict(server, "Pages", page), pages), strict=True)
            )
        deadly = answers.pop("deadly")
        assert deadly.json["code"] in {"worker_lost", "quarantined"}, deadly
        assert {page: one.json for page, one in answers.items()} == {page: page for page in answers}
        predict(server, "Pages", "deadly")
        until(lambda: quarantined(server), 30, "it is in quarantine")
        (row,) = quarantined(server)
        assert row["task"] == "Pages" and DEATHS <= row["deaths"] <= DEATHS + 1, row
        assert {page: predict(server, "Pages", page).status for page in answers} == dict.fromkeys(
            answers, 200
        )
        assert server.stop() == 0
