"""Rows of the catalogue of faults that need a server of their own: poison, no worker, zones, full disks."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import uuid
from pathlib import Path

import pytest

from tests.e2e.harness import SHORT, WAIT_MAX_S, Served, timed
from tests.pipes import fill
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]
CGROUP = Path("/sys/fs/cgroup/memory")


def test_f017_poison_ends_alone_in_the_dead_letters_and_100_good_jobs_succeed(tmp_path):
    kinds = ["segfault", "os._exit", "sys.exit", "sigkill"]
    with Served(tmp_path, "faults.py", workers=2, env=SHORT) as server:
        lines = [{"task": "poison", "payload": [f"good.{n}", ""]} for n in range(100)]
        for n, kind in enumerate(kinds):
            lines.insert(20 * n + 5, {"task": "poison", "payload": [kind, kind]})
        ids = [v["job_id"] for v in server.submit_many(lines)]
        records = server.finals(ids, 90.0)
        runs = server.runs()
        for line, job_id in zip(lines, ids, strict=True):
            name, kind = line["payload"]
            record = records[job_id]
            if not kind:
                assert (record["status"], record["attempt"]) == ("COMPLETED", 1), record
                assert runs[name] == 1, "what ended before a neighbour died is not run again"
                continue
            assert record["status"] == "FAILED", record
            assert runs[name] == 3, (name, runs[name])
            if kind != "sys.exit":
                assert record["error"]["code"] == "worker_lost", record["error"]
            assert server.get(f"/v1/dead-letters/{job_id}").status == 200
        assert server.stop() == 0


@contextlib.contextmanager
def memory_group(limit_b):
    """A cgroup v1 with a limit; yields its directory, or skips where none can be made."""
    group = CGROUP / f"forebay-e2e-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(limit_b))
    except OSError as error:
        pytest.skip(f"no cgroup v1 memory limit can be set here: {error}")
    try:
        yield group
    finally:
        until(lambda: not (group / "cgroup.procs").read_text().strip(), WAIT_MAX_S, "the group empty")
        group.rmdir()


def test_f017_a_memory_hog_is_named_and_ends_alone(tmp_path):
    with memory_group(400 << 20) as group, Served(tmp_path, "faults.py", workers=1, env=SHORT) as server:
        for pid in server.living():
            (group / "cgroup.procs").write_text(str(pid))
        hog = server.submit("poison", ["hog", "hog"])
        good = [server.submit("poison", [f"good.{n}", ""]) for n in range(20)]
        dead = server.final(hog["job_id"], 60.0)
        assert dead["status"] == "FAILED" and dead["error"]["code"] == "worker_lost", dead
        assert "memory" in json.dumps(dead["error"]).lower(), dead["error"]
        assert server.runs()["hog"] == 3
        records = server.finals([job["job_id"] for job in good], 40.0)
        assert {record["status"] for record in records.values()} == {"COMPLETED"}
        server.stop()


def test_f017_a_poison_job_can_be_cancelled_between_its_deaths(tmp_path):
    with Served(tmp_path, "faults.py", workers=1, env=SHORT) as server:
        job_id = server.submit("poison", ["c", "os._exit"], attempts_max=100)["job_id"]
        server.started("c")
        until(
            lambda: server.ask("DELETE", f"/v1/jobs/{job_id}").status in (200, 202, 409),
            WAIT_MAX_S,
            "answered",
        )
        assert server.final(job_id)["status"] in ("CANCELLED", "FAILED")
        runs = server.runs()["c"]
        assert runs <= 3
        assert server.submit("echo", 1, wait=15)["status"] == "COMPLETED"
        assert server.runs()["c"] == runs
        server.stop()


@pytest.mark.timed
def test_f027_a_job_whose_bell_did_not_ring_is_found_by_the_backstop(tmp_path):
    with Served(tmp_path, "faults.py", workers=1, env=SHORT, off=_off("no_doorbell")) as server:
        server.final(server.submit("echo", 0)["job_id"])
        for n in range(3):
            took_s, done = timed(lambda n=n: server.final(server.submit("echo", n)["job_id"], 8.0))
            assert done["status"] == "COMPLETED" and took_s < 3.0, took_s
        server.stop()


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "Pacific/Chatham", "America/St_Johns"])
@pytest.mark.timed
def test_f041_in_any_zone_delays_retries_and_ttl_are_what_they_say(tmp_path, zone):
    with Served(tmp_path, "faults.py", workers=1, env={**SHORT, "TZ": zone}) as server:
        began = time.time()
        due = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began + 3))
        delayed = server.submit("nap", ["delayed", 0], run_at=due)
        retried = server.submit("second_time", "retried")
        server.ask("POST", "/v1/queues/echo/pause")
        short = server.submit("echo", 1, ttl="1s")
        assert server.final(short["job_id"], 5.0)["status"] == "EXPIRED"
        done = server.final(delayed["job_id"])
        server.final(retried["job_id"])
        assert done["finished_at"].endswith("Z") and done["created_at"].endswith("Z")
        starts = [(name, at) for what, name, _, _, at in server.ledger() if what == "start"]
        (at,) = [at for name, at in starts if name == "delayed"]
        assert 2.0 <= at - began < 6.0, at - began
        first, second = [at for name, at in starts if name == "retried"]
        assert 1.0 <= second - first < 4.5, second - first
        server.stop()


def test_f044_f086_f107_without_any_worker_ttl_holds_and_readiness_says_why(tmp_path):
    server = Served(tmp_path, "unloadable.py", workers=1, env=SHORT)
    try:
        server.start(ready=False)
        assert server.get("/healthz").status == 200
        job = server.submit("Broken", 1, ttl="1s")
        assert server.final(job["job_id"])["status"] == "EXPIRED"
        reason = until(lambda: _reason(server, "crash_loop"), WAIT_MAX_S, "the crash loop named")
        assert "Broken" in reason
        assert server.get("/healthz").status == 200
        workers = server.get("/v1/workers").json["items"]
        assert "no weights" in workers[0]["last_crash"], workers
        assert server.stop() == 0
    finally:
        server.end()


@pytest.mark.timed
def test_f056_clients_that_hang_up_leave_nothing_behind(tmp_path):
    with Served(tmp_path, "faults.py", workers=2, env=SHORT) as server:

        def hang_up(n):
            body = {"task": "nap", "payload": [f"f056.{n}", 0.05]}
            with contextlib.suppress(OSError, http.client.HTTPException):
                server.ask("POST", "/v1/jobs", body, {"Prefer": "wait=20"}, timeout=0.2)

        threads = [threading.Thread(target=hang_up, args=(n,)) for n in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20.0)

        def quiet():
            (queue,) = [q for q in server.get("/v1/queues").json["items"] if q["task"] == "nap"]
            return queue["depth"] == 0 and queue["running"] == 0

        until(quiet, 30.0, "all of them done")
        assert all(count == 1 for count in server.runs().values())
        took_s, code = timed(server.stop)
        assert code == 0 and took_s < 5.0


@pytest.mark.timed
def test_f069_results_past_their_retention_are_gone(tmp_path):
    with Served(tmp_path, "faults.py", workers=2, env={**SHORT, "FOREBAY_RETENTION": "2s"}) as server:
        ids = [v["job_id"] for v in server.submit_many([{"task": "echo", "payload": n} for n in range(200)])]
        last = server.final(ids[-1])
        assert last["status"] == "COMPLETED"
        until(lambda: server.get(f"/v1/jobs/{ids[0]}/result").status in (404, 410), 6.0, "gone")
        until(lambda: server.get(f"/v1/jobs/{ids[-1]}").status in (404, 410), 6.0, "gone")
        server.stop()


def test_f092_a_second_server_on_the_same_data_is_refused_in_one_line(tmp_path):
    with Served(tmp_path, "faults.py", workers=1, env=SHORT) as server:
        other = Served(tmp_path, "faults.py", workers=1, env=SHORT)
        other.log_path = tmp_path / "other.log"
        try:
            other.launch()
            assert other.wait(30.0) == 3
            lines = [line for line in other.log.splitlines() if line.strip()]
            assert len(lines) == 1 and str(server.process.pid) in lines[0], lines
        finally:
            other.end()
        assert server.submit("echo", 1, wait=10)["status"] == "COMPLETED"
        server.stop()


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of 50 MB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=50m", "forebay-e2e", str(directory)], capture_output=True
    )
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.decode().strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def test_f095_a_full_disk_refuses_new_work_and_the_server_goes_on_when_there_is_room(tmp_path, small_disk):
    with Served(tmp_path, "faults.py", workers=2, env=SHORT, data=str(small_disk / "data")) as server:
        running = server.submit("nap", ["running", 4])
        server.started("running")
        stone = small_disk / "stone"
        with contextlib.suppress(OSError), stone.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 65536)
        lines_before = len(server.log.splitlines())
        refusals, accepted = [], []
        ends_at = time.monotonic() + 6.0
        while time.monotonic() < ends_at:
            answer = server.ask("POST", "/v1/jobs", {"task": "large", "payload": ["x", 1, "y" * 20_000]})
            (accepted if answer.status == 202 else refusals).append(answer)
        assert len(refusals) > 5, "the disk was never full"
        assert {answer.status for answer in refusals} <= {503, 507}, refusals[:3]
        assert all("retry-after" in answer.headers for answer in refusals), refusals[0].headers
        assert server.get("/readyz").status == 503
        assert server.get("/healthz").status == 200
        lines = server.log.splitlines()[lines_before:]
        assert len(lines) < 13, f"{len(lines)} log lines in 6 s: {lines[:5]}"
        stone.unlink()
        done = server.final(running["job_id"])
        assert done["status"] == "COMPLETED" and server.runs()["running"] == 1
        until(lambda: server.is_ready(), WAIT_MAX_S, "ready again")
        for answer in accepted:
            assert server.final(answer.json["job_id"])["status"] == "COMPLETED"
        assert server.submit("echo", 1, wait=10)["status"] == "COMPLETED"
        assert server.stop() == 0
        check = _integrity(small_disk / "data")
        assert check == "ok", check


def _integrity(directory):
    import apsw

    (file,) = [one for one in directory.iterdir() if one.suffix in (".db", ".sqlite", ".sqlite3")]
    return next(iter(apsw.Connection(str(file)).execute("PRAGMA integrity_check")))[0]


def _reason(server, word):
    answer = server.get("/readyz")
    return answer.status == 503 and word in answer.body.decode() and answer.body.decode()


def _off(name):
    """What the whole run was asked to switch off goes first."""
    return os.environ.get("E2E_SABOTAGE") or name


def test_a_server_that_stood_still_longer_than_a_lease_keeps_what_its_children_run(tmp_path):
    with Served(tmp_path, "faults.py", env=SHORT) as server:
        job = server.submit("nap", ["one", 6.0], attempts_max=1)["job_id"]
        server.started("one")
        server.signal(signal.SIGSTOP)
        time.sleep(3.0)  # the fault itself: longer than the lease of 2 s
        server.signal(signal.SIGCONT)
        record = server.final(job)
        assert (record["state"], record["attempt"], server.runs()["one"]) == ("succeeded", 1, 1)


def test_a_store_that_is_deleted_under_the_server_is_said_and_nothing_new_is_accepted(tmp_path):
    with Served(tmp_path, "faults.py", env=SHORT) as server:
        job = server.submit("nap", ["one", 1.5])["job_id"]
        server.started("one")
        shutil.rmtree(tmp_path / "data")
        until(lambda: server.get("/readyz").status == 503, WAIT_MAX_S, "unready")
        answer = server.ask("POST", "/v1/jobs", {"task": "echo", "payload": 1})
        assert (answer.status, answer.json["code"]) == (503, "store_unavailable")
        assert server.final(job)["state"] == "succeeded"
        assert "store_gone" in server.log


def test_a_log_that_nobody_reads_holds_up_no_job_and_no_end(tmp_path):
    """As a terminal stopped with Ctrl-S, or a pager: what the server says goes unread, what it does goes on."""
    reader, writer = os.pipe()
    server = Served(tmp_path, "faults.py", env=SHORT)
    try:
        server.launch(output=writer)
        heard = b""
        while b"127.0.0.1:" not in heard or not heard.endswith(b"\n"):
            heard += os.read(reader, 4096)
        server.port = int(heard.split(b"127.0.0.1:")[1].split()[0])
        until(server.is_ready, WAIT_MAX_S, "ready")
        fill(writer)
        for _ in range(3):
            job = server.submit("nap", ["x", 30])
            assert server.ask("DELETE", f"/v1/jobs/{job['job_id']}").status in (200, 202)  # a line in the log
        assert server.submit("odd", "404", wait=10)["status"] == "FAILED"
        assert server.submit("echo", 1, wait=10)["status"] == "COMPLETED"
        assert server.get("/readyz").status == 200
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGINT)
        assert server.wait(WAIT_MAX_S) == 0
    finally:
        server.end()
        os.close(writer)
        os.close(reader)
