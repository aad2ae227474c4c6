"""Rows of the catalogue of faults, each on one real server with a lease of 2 s. README.md maps rows to tests."""

import itertools
import time

import pytest

from tests.e2e.harness import SHORT, WAIT_MAX_S, Served, timed
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Served(tmp_path_factory.mktemp("faults"), "faults.py", workers=2, env=SHORT) as server:
        yield server
        assert server.stop() == 0


# -- A: the lease ends early ---------------------------------------------------------------------------


def test_f001_a_handler_longer_than_its_lease_runs_once(server):
    job = server.submit("nap", ["f001", 7])
    done = server.final(job["job_id"], 30.0)
    assert (done["status"], done["attempt"]) == ("COMPLETED", 1)
    assert server.runs()["f001"] == 1


def test_f002_jobs_behind_a_long_one_run_once_though_they_wait_longer_than_a_lease(server):
    jobs = [server.submit("nap", [f"f002.{n}", 1.5]) for n in range(6)]
    records = server.finals([job["job_id"] for job in jobs], 40.0)
    assert {(one["status"], one["attempt"]) for one in records.values()} == {("COMPLETED", 1)}
    assert all(server.runs()[f"f002.{n}"] == 1 for n in range(6))


@pytest.mark.timed
def test_f003_a_held_gil_is_no_death(server):
    job = server.submit("hold_gil", ["f003", 6])
    server.started("f003")
    until(
        lambda: any(w["state"] == "unresponsive" for w in server.get("/v1/workers").json["items"]),
        5.0,
        "shown as unresponsive",
    )
    done = server.final(job["job_id"], 30.0)
    assert (done["status"], done["attempt"], server.runs()["f003"]) == ("COMPLETED", 1, 1)


# -- D: poison -----------------------------------------------------------------------------------------


def test_f015_f038_a_handler_that_raises_is_tried_again_then_kept_with_its_error(server):
    job = server.submit("again", "f038")
    other = server.submit("echo", "f038b", wait=10)
    assert other["status"] == "COMPLETED"
    dead = server.final(job["job_id"])
    assert dead["status"] == "FAILED" and server.runs()["f038"] == 5
    starts = [line[4] for line in server.ledger() if line[:2] == ("start", "f038")]
    gaps = [after - before for before, after in itertools.pairwise(starts)]
    assert min(gaps) > 0.09, f"asking for another try at once must not spin: {gaps}"
    letter = server.get(f"/v1/dead-letters/{job['job_id']}")
    assert letter.status == 200 and letter.json["attempt"] == 5, letter


def test_f037_a_herd_of_failures_comes_back_spread(server):
    began = time.time()
    verdicts = server.submit_many([{"task": "second_time", "payload": f"f037.{n}"} for n in range(300)])
    server.finals([v["job_id"] for v in verdicts], 60.0)
    first, second = {}, {}
    for what, name, attempt, _, at in server.ledger():
        if what == "start" and name.startswith("f037."):
            (first if attempt == 1 else second)[name] = at
    waits = sorted(second[name] - first[name] for name in first)
    assert len(waits) == 300 and waits[0] >= 1.0, waits[0]
    assert waits[225] - waits[75] > 0.3, "they came back together"
    assert time.time() - began < 60


# -- H: time -------------------------------------------------------------------------------------------


@pytest.mark.timed
def test_f043_many_expired_jobs_do_not_hold_up_the_good_one(server):
    server.ask("POST", "/v1/queues/echo/pause")
    try:
        lines = [{"task": "echo", "payload": n, "ttl": "0.3s"} for n in range(5000)]
        ids = [v["job_id"] for v in server.submit_many(lines)]
        good = server.submit("echo", "good")
        server.state(ids[-1], "EXPIRED")
    finally:
        server.ask("POST", "/v1/queues/echo/resume")
    took_s, done = timed(lambda: server.final(good["job_id"]))
    assert done["status"] == "COMPLETED" and took_s < 3.0, took_s
    assert server.job(ids[0])["status"] == "EXPIRED"


# -- I: who goes first ---------------------------------------------------------------------------------


@pytest.mark.timed
def test_f046_short_jobs_pass_a_long_one_on_the_idle_worker(server):
    server.final(server.submit("echo", 0)["job_id"])
    long = server.submit("nap", ["f046.long", 6])
    server.started("f046.long")
    began = time.monotonic()
    jobs = [server.submit("nap", [f"f046.{n}", 0.05]) for n in range(3)]
    for job in jobs:
        assert server.final(job["job_id"], 5.0)["status"] == "COMPLETED"
    assert time.monotonic() - began < 3.0
    assert server.job(long["job_id"])["status"] == "PROCESSING"
    server.final(long["job_id"])


@pytest.mark.timed
def test_f047_jobs_of_the_future_do_not_hold_up_a_ready_one(server):
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    verdicts = server.submit_many([{"task": "echo", "payload": n, "run_at": later} for n in range(1000)])
    took_s, done = timed(lambda: server.submit("echo", "now", wait=10))
    assert done["status"] == "COMPLETED" and took_s < 2.0, took_s
    for verdict in verdicts[:3]:
        assert server.job(verdict["job_id"])["state"] == "scheduled"


# -- J: batches ----------------------------------------------------------------------------------------


def test_f048_f017_members_of_a_crashed_batch_lose_nothing_and_the_deadly_one_ends_alone(server):
    lines = [{"task": "Frail", "payload": [f"f048.{n}", n == 5]} for n in range(8)]
    ids = [v["job_id"] for v in server.submit_many(lines)]
    records = server.finals(ids)
    ends = [records[job_id]["status"] for job_id in ids]
    assert ends == ["COMPLETED"] * 5 + ["FAILED"] + ["COMPLETED"] * 2
    assert all(records[job_id]["attempt"] == 1 for job_id in ids if job_id != ids[5])
    assert records[ids[5]]["error"]["code"] == "worker_lost"


# -- K: cancel and timeout -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["queued", "scheduled", "running", "retrying", "succeeded", "dead"])
def test_f052_cancel_in_each_state(server, state):
    name = f"f052.{state}"
    if state == "queued":
        server.ask("POST", "/v1/queues/nap/pause")
        job = server.submit("nap", [name, 0.1])
    elif state == "scheduled":
        later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
        job = server.submit("nap", [name, 0.1], run_at=later)
    elif state == "running":
        job = server.submit("tick", [name, 30, True])
    elif state == "retrying":
        job = server.submit("second_time", name)
    elif state == "succeeded":
        job = server.submit("echo", name)
    else:
        job = server.submit("odd", "404")
    job_id = job["job_id"]
    try:
        server.state(job_id, state)
        if state == "running":  # leased is not begun: the handler's own note says that it runs
            until(lambda: server.runs()[name] == 1, WAIT_MAX_S, "the handler's first line")
        before = server.runs()[name]
        answer = server.ask("DELETE", f"/v1/jobs/{job_id}")
        if state in ("succeeded", "dead"):
            assert answer.status == 409, answer
            assert server.job(job_id)["state"] == state
            return
        assert answer.status == (202 if state == "running" else 200), answer
        assert server.final(job_id)["status"] == "CANCELLED"
    finally:
        if state == "queued":
            server.ask("POST", "/v1/queues/nap/resume")
    lines = len([line for line in server.ledger() if line[1] == name])
    ends_at = time.monotonic() + (3.0 if state in ("scheduled", "retrying") else 0.5)
    until(lambda: time.monotonic() >= ends_at, 5.0, "time to run after all")
    assert server.runs()[name] == before, "it ran after it was cancelled"
    assert len([line for line in server.ledger() if line[1] == name]) == lines
    assert server.job(job_id)["status"] == "CANCELLED"


def test_f053_a_cancel_and_a_finish_at_once_have_one_winner(server):
    """Against real children; the engines' own race is a check of the contract."""
    outcomes = {"COMPLETED": 0, "CANCELLED": 0}
    for n in range(120):
        job_id = server.submit("tick", [f"f053.{n}", 0.1, True])["job_id"]
        if n % 4:  # else at once, perhaps before it starts
            until(lambda n=n: server.runs()[f"f053.{n}"], WAIT_MAX_S, "started")
            ends_at = time.monotonic() + 0.03 * (n % 4)
            until(lambda at=ends_at: time.monotonic() >= at, 2.0, "the moment")
        answer = server.ask("DELETE", f"/v1/jobs/{job_id}")
        done = server.final(job_id)
        outcomes[done["status"]] += 1
        if answer.status == 200:
            assert done["status"] == "CANCELLED", (answer, done)
            assert server.runs()[f"f053.{n}"] == 0 or answer.json["status"] == "CANCELLED"
        elif answer.status == 409:
            assert done["status"] == "COMPLETED", (answer, done)
        assert server.job(job_id)["finished_at"] == done["finished_at"]
    assert outcomes["CANCELLED"] and outcomes["COMPLETED"], outcomes


@pytest.mark.parametrize("kind", ["sleep", "native", "socket", "swallow"])
@pytest.mark.timed
def test_f054_a_timeout_ends_whatever_the_handler_does(server, kind):
    job = server.submit("overrun", [f"f054.{kind}", kind])
    server.started(f"f054.{kind}")
    took_s, done = timed(lambda: server.final(job["job_id"], 10.0))
    assert (done["status"], done["error"]["code"]) == ("FAILED", "timeout"), done
    assert took_s < 3.0, took_s
    assert server.submit("echo", kind, wait=10)["status"] == "COMPLETED"


@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.timed
def test_f055_nothing_is_written_after_cancelled_was_told(server, listens):
    name = f"f055.{listens}"
    job_id = server.submit("tick", [name, 30, listens])["job_id"]
    server.started(name)
    answer = server.ask("DELETE", f"/v1/jobs/{job_id}")
    assert answer.status == 202 and answer.json["status"] == "PROCESSING", answer
    took_s, done = timed(lambda: server.final(job_id, 15.0))
    told_at = time.time()
    assert done["status"] == "CANCELLED"
    assert took_s < (1.5 if listens else 7.0), took_s
    ends_at = time.monotonic() + 0.5
    until(lambda: time.monotonic() >= ends_at, 2.0, "time to write")
    assert not [line for line in server.ledger() if line[1] == name and line[4] > told_at]


# -- M, N: what is told --------------------------------------------------------------------------------


@pytest.mark.timed
def test_f066_every_long_poll_hears_of_the_end(server):
    slowest = 0.0
    for n in range(200):
        job_id = server.submit("echo", n)["job_id"]
        took_s, answer = timed(lambda job_id=job_id: server.get(f"/v1/jobs/{job_id}?wait=10"))
        while answer.json["status"] not in ("COMPLETED",):
            answer = server.get(f"/v1/jobs/{job_id}?wait=10")
        slowest = max(slowest, took_s)
    assert slowest < 2.0, slowest


def test_f070_a_404_of_the_handler_is_no_404_of_ours(server):
    job_id = server.submit("odd", "404")["job_id"]
    server.final(job_id)
    answer = server.get(f"/v1/jobs/{job_id}")
    assert answer.status == 200 and answer.json["status"] == "FAILED"
    assert "404" in answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("nul", "a\0b"),
        ("negative zero", -0.0),
        ("2^63", 2**63),
        ("2^53+1", 2**53 + 1),
        ("1e-400", 0.0),
        ("nan", None),
        ("infinity", None),
        ("nul error", None),
    ],
)
def test_f071_f072_odd_results_are_kept_exactly_or_fail_by_name(server, kind, expected):
    job_id = server.submit("odd", kind)["job_id"]
    done = server.final(job_id)
    if expected is None:
        assert done["status"] == "FAILED" and done["error"]["code"], done
        assert server.runs()[kind.replace(" ", "_")] <= 1
    else:
        assert done["status"] == "COMPLETED" and done["result"] == expected, done
        assert server.get(f"/v1/jobs/{job_id}/result").json == expected


@pytest.mark.parametrize("size", [60_000, 70_000, 256 * 1024 - 2, 256 * 1024 - 1, 10_000_000, 200_000_000])
def test_f075_f084_a_result_of_any_size_arrives_and_runs_once(server, size):
    name = f"f084.{size}"
    job_id = server.submit("large", [name, size])["job_id"]
    done = server.final(job_id, 40.0)
    if size + 2 <= 256 * 1024:
        assert done["status"] == "COMPLETED" and len(done["result"]) == size
    else:
        assert done["status"] == "COMPLETED" and set(done["result"]) == {"$blob"}, done["error"]
        assert len(server.get(f"/v1/jobs/{job_id}/result").json) == size
    assert server.runs()[name] == 1, "it was tried again"


def test_at_the_end_nothing_is_left_in_hand(server):
    def empty():
        queues = server.get("/v1/queues").json["items"]
        return all(queue["running"] == 0 and queue["depth"] == 0 for queue in queues)

    until(empty, WAIT_MAX_S, "no queue holds anything")


# -- who ran it, and whom a kill was about ---------------------------------------------------------------


def test_a_timeline_names_the_replica_as_the_list_of_workers_does(server):
    names = {worker["worker"] for worker in server.get("/v1/workers").json["items"]}
    assert all(name.rpartition("/")[2].isdigit() for name in names)
    done = server.submit("echo", "who", wait=10)
    started = [entry for entry in done["timeline"] if entry["event"] == "started"]
    assert started and all(entry["worker"] in names for entry in started)
    job_id = server.submit("odd", "404")["job_id"]
    failed = server.final(job_id)
    assert {entry["worker"] for entry in failed["timeline"] if entry["event"] == "started"} <= names


def test_the_log_of_a_kill_and_of_a_death_names_the_job(server):
    job_id = server.submit("overrun", ["who.killed", "sleep"])["job_id"]
    server.final(job_id)

    def lines(event):
        return [line for line in server.log.splitlines() if event in line and job_id in line]

    until(lambda: lines("child_restarted"), WAIT_MAX_S, "the line of the death")
    assert '"task": "overrun"' in lines("child_restarted")[0]
