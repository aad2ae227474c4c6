"""Signals: a server asked to stop takes nothing new, finishes or hands back what it has, and leaves nothing."""

import contextlib
import http.client
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.e2e.harness import Served, ask_on, gone, timed
from tests.waiting import until

pytestmark = [pytest.mark.timed, pytest.mark.slow, pytest.mark.timeout(240)]


def test_sigterm_refuses_new_work_answers_old_finishes_what_runs_and_exits_0(tmp_path):
    with Served(tmp_path, workers=1) as server:
        running = server.submit("nap", ["running", 2.0])
        server.started("running")
        waiting = server.submit("nap", ["waiting", 0.1])
        kept = server.connect()
        assert ask_on(kept, "GET", "/healthz").status == 200
        children = server.children()

        server.signal(signal.SIGTERM)
        refused = until(lambda: _refused(server), 3.0, "new work refused")
        assert refused.status == 503 and refused.json["code"] == "draining", refused
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["connection"].lower() == "close"
        many = server.ask(
            "POST", "/v1/jobs", b'{"task":"echo","payload":1}\n', {"Content-Type": "application/x-ndjson"}
        )
        assert many.status == 503 and many.headers["connection"].lower() == "close", many
        assert server.get("/readyz").status == 503
        looked = ask_on(kept, "GET", f"/v1/jobs/{running['job_id']}")
        assert looked.json["status"] == "PROCESSING"
        assert looked.headers["connection"].lower() == "close", "or its next request meets the end"
        kept.close()

        assert server.wait(10.0) == 0
        assert all(gone(pid) for pid in children)
        assert server.runs() == {"running": 1}  # what waited was not begun

        server.start()
        assert server.final(running["job_id"])["status"] == "COMPLETED"
        done = server.final(waiting["job_id"])
        assert (done["status"], done["attempt"]) == ("COMPLETED", 1)
        assert server.runs() == {"running": 1, "waiting": 1}
        assert server.stop() == 0


def test_a_long_poll_is_answered_while_the_server_drains(tmp_path):
    with Served(tmp_path, workers=1) as server:
        job = server.submit("nap", ["j", 1.5])
        server.started("j")
        answers = []
        waiter = threading.Thread(
            target=lambda: answers.append(server.get(f"/v1/jobs/{job['job_id']}?wait=20", timeout=25.0))
        )
        waiter.start()
        server.signal(signal.SIGTERM)
        waiter.join(10.0)
        assert answers and answers[0].json["status"] == "COMPLETED", answers
        assert server.wait(5.0) == 0


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT to the group", "SIGTERM to the group"])
def test_at_the_end_of_the_grace_a_deaf_job_is_handed_back_uncharged(tmp_path, how):
    """attempts_max is 1: one charge would make a dead letter of it."""
    with Served(tmp_path, workers=1, env={"FOREBAY_GRACE": "1s"}) as server:
        job = server.submit("tick", ["deaf", 60])
        server.started("deaf")
        children = server.children()
        signals = {
            "SIGTERM": lambda: server.signal(signal.SIGTERM),
            "SIGINT to the group": lambda: server.signal_group(signal.SIGINT),
            "SIGTERM to the group": lambda: server.signal_group(signal.SIGTERM),
        }
        signals[how]()
        took_s, code = timed(lambda: server.wait(10.0))
        assert code == 0
        assert took_s < 2.5, took_s
        assert took_s > 0.9, "it did not give the job its grace"
        assert all(gone(pid) for pid in children)
        lines = len(server.ledger())
        for start in (2, 3):
            server.start()
            server.started("deaf", start)
            record = server.job(job["job_id"])
            assert (record["status"], record["attempt"]) == ("PROCESSING", 1)
            old = [line for line in server.ledger()[lines:] if line[3] in children]
            assert not old, "the old process wrote after its server ended"
            server.signal(signal.SIGTERM)
            assert server.wait(5.0) == 0


def test_a_second_signal_ends_the_drain_at_once(tmp_path):
    with Served(tmp_path, workers=1) as server:
        job = server.submit("nap", ["long", 60])
        server.started("long")
        server.signal(signal.SIGTERM)
        until(lambda: _refused(server), 3.0, "draining")
        assert server.process.poll() is None
        server.signal(signal.SIGTERM)
        took_s, code = timed(lambda: server.wait(10.0))
        assert code == 0 and took_s < 1.0, took_s
        server.start()
        server.started("long", 2)
        assert server.job(job["job_id"])["attempt"] == 1
        server.signal_group(signal.SIGINT)
        until(lambda: _refused(server), 3.0, "draining")
        server.signal_group(signal.SIGINT)
        assert server.wait(2.0) == 0
        server.start()
        server.started("long", 3)
        server.signal(signal.SIGHUP)  # the terminal is gone: no reason to lose what runs
        until(lambda: _refused(server), 3.0, "draining")
        server.signal(signal.SIGHUP)
        assert server.wait(2.0) == 0
        server.start()
        server.started("long", 4)
        assert server.job(job["job_id"])["attempt"] == 1
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGINT)
        server.wait(5.0)


def test_ctrl_c_lets_four_running_jobs_finish(tmp_path):
    with Served(tmp_path, workers=4) as server:
        jobs = [server.submit("nap", [f"j{n}", 1.0]) for n in range(4)]
        for n in range(4):
            server.started(f"j{n}")
        server.signal_group(signal.SIGINT)
        assert server.wait(10.0) == 0
        server.start()
        assert [server.job(job["job_id"])["status"] for job in jobs] == ["COMPLETED"] * 4
        assert all(server.job(job["job_id"])["attempt"] == 1 for job in jobs)
        assert set(server.runs().values()) == {1}
        server.stop()


def test_three_restarts_in_the_middle_of_a_job_cost_no_attempt_but_kill_9_does(tmp_path):
    with Served(tmp_path, workers=1, env={"FOREBAY_GRACE": "0s"}) as server:
        job = server.submit("nap", ["one", 30])
        for start in range(1, 4):
            server.started("one", start)
            server.signal(signal.SIGTERM)
            assert server.wait(5.0) == 0
            server.start()
        server.started("one", 4)
        assert server.job(job["job_id"])["attempt"] == 1
        server.kill()
        server.start()
        dead = server.final(job["job_id"])
        assert dead["status"] == "FAILED" and dead["error"]["code"] == "worker_lost", dead
        assert server.runs()["one"] == 4
        server.stop()


def test_idle_connections_long_polls_and_a_stalled_upload_do_not_hold_up_the_end(tmp_path):
    with Served(tmp_path, workers=1, env={"FOREBAY_GRACE": "2s"}) as server:
        later = server.submit("echo", 1, run_at=in_an_hour())["job_id"]
        idle = [server.connect() for _ in range(20)]
        polls = [server.connect() for _ in range(20)]
        for connection in idle:
            assert ask_on(connection, "GET", "/healthz").status == 200
        for connection in polls:
            connection.request("GET", f"/v1/jobs/{later}?wait=60")
        stalled = server.connect()
        stalled.putrequest("POST", "/v1/jobs")
        stalled.putheader("Content-Type", "application/json")
        stalled.putheader("Content-Length", "1000")
        stalled.endheaders(b'{"task": "ec')
        server.signal(signal.SIGTERM)
        took_s, code = timed(lambda: server.wait(10.0))
        assert code == 0 and took_s < 4.0, took_s
        answered = [connection.getresponse() for connection in polls]
        assert {answer.status for answer in answered} == {200}, "a long poll was cut without an answer"
        for connection in (*idle, *polls, stalled):
            connection.close()


def test_clients_that_hammer_a_stopping_server_see_answers_or_a_closed_door_never_a_reset(tmp_path):
    """And what they were told 202 for is there after the restart, run once."""
    resets, accepted, statuses = [], [], set()
    over = threading.Event()

    def hammer(server, me):
        n = 0
        while not over.is_set():
            n += 1
            name = f"h{me}.{n}"
            try:
                answer = server.ask("POST", "/v1/jobs", {"task": "nap", "payload": [name, 0.001]})
            except ConnectionRefusedError:
                return
            except (OSError, http.client.HTTPException) as error:
                resets.append((name, repr(error)))
                return
            statuses.add(answer.status)
            if answer.status == 202:
                accepted.append((name, answer.json["job_id"]))

    with Served(tmp_path, workers=2) as server:
        threads = [threading.Thread(target=hammer, args=(server, me)) for me in range(8)]
        for thread in threads:
            thread.start()
        until(lambda: len(accepted) > 200, 20.0, "some load")
        server.signal(signal.SIGTERM)
        assert server.wait(20.0) == 0
        over.set()
        for thread in threads:
            thread.join(10.0)
        assert not resets, resets
        assert statuses == {202, 503}
        server.start()
        records = server.finals([job_id for _, job_id in accepted])
        assert {record["status"] for record in records.values()} == {"COMPLETED"}
        assert set(server.runs().values()) == {1}
        server.stop()


@pytest.mark.timeout(420)
def test_a_signal_at_any_moment_under_load_with_failing_handlers_ends_within_the_grace(tmp_path):
    """24 rounds; one handler run in ten raises."""
    chance = random.Random(91)
    env = {"FOREBAY_GRACE": "1s"}
    ids, slowest_s = [], 0.0
    with Served(tmp_path, workers=2, env=env) as server:
        for round_ in range(24):
            if round_:
                server.start()
            lines = [{"task": "flaky", "payload": f"r{round_}.{n}"} for n in range(300)]
            lines += [{"task": "Batch", "payload": [f"b{round_}.{n}", 0.02]} for n in range(40)]
            ids += [v["job_id"] for v in server.submit_many(lines)]
            wait_until = time.monotonic() + chance.random() * 0.8
            until(lambda at=wait_until: time.monotonic() >= at, 2.0, "the moment")
            server.signal(chance.choice([signal.SIGTERM, signal.SIGINT]))
            took_s, code = timed(lambda: server.wait(6.0))
            slowest_s = max(slowest_s, took_s)
            assert code == 0, code
            assert took_s < 2.5, took_s
            assert not server.living()
        server.start()
        records = server.finals(ids, max_s=90.0)
        assert {record["status"] for record in records.values()} == {"COMPLETED"}
        assert server.stop() == 0
    print(f"24 ends under load: slowest {slowest_s:.2f} s of 1 s grace")


def test_a_signal_while_it_starts_ends_it_too(tmp_path):
    chance = random.Random(7)
    server = Served(tmp_path, workers=2)
    try:
        for _ in range(6):
            server.launch()
            moment = time.monotonic() + chance.random() * 2.5
            until(
                lambda at=moment: time.monotonic() >= at or server.process.poll() is not None, 4.0, "moment"
            )
            server.signal(signal.SIGTERM)
            assert server.wait(8.0) in (0, 128 + signal.SIGTERM, -signal.SIGTERM)
            until(lambda: not server.living(), 1.0, "no child left")
    finally:
        server.end()


def test_as_process_1_of_a_container_it_finishes_what_runs_and_leaves(tmp_path):
    """Nobody else there handles a signal or buries the dead."""
    namespace = ["unshare", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no process namespace can be made here")
    with Served(tmp_path, workers=1, under=namespace) as server:
        job = server.submit("nap", ["one", 1.5])
        server.started("one")
        outer = server.process.pid
        (inner,) = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        os.kill(int(inner), signal.SIGTERM)
        took_s, code = timed(lambda: server.wait(10.0))
        assert code == 0 and took_s < 5.0, took_s
        server.under = []
        server.start()
        assert server.job(job["job_id"])["status"] == "COMPLETED"
        assert server.runs() == {"one": 1}
        server.stop()


def in_an_hour():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))


def _refused(server):
    with contextlib.suppress(OSError, http.client.HTTPException):
        answer = server.ask("POST", "/v1/jobs", {"task": "echo", "payload": "probe"})
        return answer if answer.status == 503 else None
    return None
