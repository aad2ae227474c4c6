"""A real server with keys: listens beyond loopback, reads its keys file again, and tells no key to anybody."""

import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from forebay.core.tenant import Scope
from forebay.keys import line_for, new_key, new_payload_key
from tests.e2e.harness import Served
from tests.waiting import until


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def command(*argv, url=None, key=None):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    clean |= {"FOREBAY_URL": url} if url else {}
    clean |= {"FOREBAY_API_KEY": key} if key else {}
    return subprocess.run(
        [sys.executable, "-m", "forebay", *argv],
        env=clean,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def file_of(*rows):
    return "[keys]\n" + "".join(line_for(key, tenant, scopes) + "\n" for key, tenant, scopes in rows)


@pytest.mark.timeout(120)
def test_keys_are_checked_by_the_whole_server_and_read_again_while_it_runs(tmp_path):
    a, b, ops = new_key(), new_key(), new_key()
    some = (Scope.SUBMIT, Scope.READ)
    keys = tmp_path / "keys.toml"
    keys.write_text(file_of((a, "a", some), (ops, "ops", [Scope.ADMIN])))
    env = {"FOREBAY_KEYS_FILE": str(keys), "FOREBAY_HOST": "0.0.0.0", "FOREBAY_LOG_FORMAT": "json"}
    with Served(tmp_path / "served", env=env) as served:
        url = f"http://127.0.0.1:{served.port}"
        assert served.get("/v1/jobs").status == 401
        assert served.get("/v1/jobs", headers=bearer(b)).status == 401
        assert served.get("/v1/jobs", headers={**bearer(a), "Host": "queue.example"}).status == 200
        assert served.get("/metrics", headers=bearer(a)).status == 403

        done = command("submit", "echo", '"hello"', "--wait", "--json", url=url, key=a)
        assert done.returncode == 0, done
        for key, why in ((None, "an API key is required"), (b, "the API key is not valid")):
            refused = command("submit", "echo", "1", url=url, key=key)
            assert (refused.returncode, refused.stderr) == (1, f"forebay: {why}\n") or (
                refused.returncode == 1 and why in refused.stderr and len(refused.stderr.splitlines()) == 1
            ), refused
        refused = command("queues", "pause", "echo", url=url, key=a)
        assert refused.returncode == 1 and "lacks the scope admin" in refused.stderr, refused
        assert command("queues", "pause", "echo", url=url, key=ops).returncode == 0

        keys.write_text(file_of((b, "b", some), (ops, "ops", [Scope.ADMIN])))
        until(lambda: served.get("/v1/jobs", headers=bearer(b)).status == 200, 45, "the new key is let in")
        assert served.get("/v1/jobs", headers=bearer(a)).status == 401

        keys.write_text("[keys\n")
        served.signal(signal.SIGHUP)
        until(lambda: "keys_kept" in served.log, 45, "the broken file is told of")
        assert served.get("/v1/jobs", headers=bearer(b)).status == 200
        kept = [json.loads(line) for line in served.log.splitlines() if "keys_kept" in line]
        assert "not TOML" in kept[0]["error"]
        for key in (a, b, ops):
            assert (
                key not in served.log and key not in served.get("/metrics", headers=bearer(ops)).body.decode()
            )
            assert key not in "".join(
                path.read_text("latin-1") for path in (tmp_path / "served").rglob("*") if path.is_file()
            )
        assert served.stop() == 0


def test_a_new_key_is_printed_once_with_the_line_of_its_hash():
    made = command("keys", "new", "--tenant", "a", "--scopes", "submit,read")
    key, line = made.stdout.splitlines()
    assert line == line_for(key, "a", [Scope.SUBMIT, Scope.READ]) and made.returncode == 0
    told = json.loads(command("keys", "new", "--tenant", "a", "--json").stdout)
    assert told["key"] not in told["line"] and told["line"].startswith('"sha256:')
    for argv in (["--tenant", "a/b"], ["--tenant", "a", "--scopes", "root"]):
        refused = command("keys", "new", *argv)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1), refused


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"FOREBAY_HOST": "0.0.0.0"}, "there are no API keys"),
        ({"FOREBAY_KEYS_FILE": "none.toml"}, "keys_file none.toml: no such file"),
        ({"FOREBAY_API_KEYS": "top-secret-key=a:root"}, "scope 'root' is not one of"),
    ],
)
def test_wrong_keys_stop_the_start_in_one_line(tmp_path, env, said):
    served = Served(tmp_path / "served", env=env)
    served.launch()
    assert served.wait(50) == 2
    assert said in served.log and len(served.log.splitlines()) == 1 and "top-secret-key" not in served.log


@pytest.mark.timeout(120)
def test_the_admin_plane_has_a_listener_of_its_own(tmp_path):
    with Served(tmp_path, env={"FOREBAY_ADMIN_PORT": "0"}) as served:
        admin = re.search(r"admin: http://127\.0\.0\.1:(\d+)", served.log)[1]
        assert served.get("/metrics").status == 404 and served.get("/v1/workers").status == 404
        url = f"http://127.0.0.1:{admin}"
        assert command("queues", "pause", "echo", url=url).returncode == 0
        assert command("workers", url=url).returncode == 0
        refused = command("queues", "resume", "echo", url=f"http://127.0.0.1:{served.port}")
        assert refused.returncode == 1 and len(refused.stderr.splitlines()) == 1, refused
        assert served.stop() == 0


@pytest.mark.timeout(120)
def test_what_jobs_hold_is_unreadable_in_the_files_of_a_real_server(tmp_path):
    key, mark = new_payload_key(), "marker-c0ffee"
    served = Served(tmp_path, env={"FOREBAY_PAYLOAD_KEYS": key})
    with served:
        job = served.submit("echo", {"text": mark}, wait=10)
        assert job["result"] == {"text": mark}
        failed = served.submit("nap", [mark, "no number"], wait=10)
        assert failed["status"] == "FAILED" and failed["error"]["message"]
        stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
        assert mark.encode() not in stored and b"$sealed" in stored
        assert key not in served.log and mark not in served.log
        served.kill()
        served.start()
        assert served.job(job["job_id"])["result"] == {"text": mark}
        assert served.stop() == 0
        served.extra = {}
        served.launch()
        assert served.wait(50) == 2
        told = served.log.strip().splitlines()[-1]
        assert told.startswith("forebay: payload_keys: ") and "holds encrypted jobs" in told


@pytest.mark.timeout(120)
def test_a_tenant_runs_no_more_at_once_than_its_limit_and_others_go_on(tmp_path):
    a, b = new_key(), new_key()
    every = (Scope.SUBMIT, Scope.READ)
    keys = tmp_path / "keys.toml"
    rows = file_of((a, "a", every), (b, "b", every))
    keys.write_text(rows + "[tenants.a]\nrunning_max = 1\n")
    with Served(tmp_path / "served", env={"FOREBAY_KEYS_FILE": str(keys)}, workers=3) as served:

        def submit(key, name):
            body = {"task": "nap", "payload": [name, 1.0]}
            answer = served.ask("POST", "/v1/jobs", body, bearer(key))
            assert answer.status == 202, answer
            return answer.json["job_id"]

        ours, other = [submit(a, f"a{n}") for n in range(3)], submit(b, "b0")
        until(
            lambda: served.get(f"/v1/jobs/{other}", headers=bearer(b)).json["status"] == "COMPLETED",
            20,
            "b ran",
        )
        until(
            lambda: all(
                served.get(f"/v1/jobs/{one}", headers=bearer(a)).json["status"] == "COMPLETED" for one in ours
            ),
            30,
            "a ran",
        )
        assert most_at_once(served, "a") == 1

        keys.write_text(rows + "[tenants.a]\nrunning_max = 3\n")
        until(lambda: "keys_read" in served.log, 45, "the new limit")
        more = [submit(a, f"c{n}") for n in range(3)]
        until(
            lambda: all(
                served.get(f"/v1/jobs/{one}", headers=bearer(a)).json["status"] == "COMPLETED" for one in more
            ),
            30,
            "all ran",
        )
        assert most_at_once(served, "c") >= 2


def most_at_once(served, initial):
    steps = sorted(
        (at, 1 if what == "start" else -1)
        for what, name, _, _, at in served.ledger()
        if name.startswith(initial) and what in {"start", "end"}
    )
    now = most = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


@pytest.mark.timeout(120)
def test_a_subject_is_erased_from_the_command_line(tmp_path):
    with Served(tmp_path) as served:
        url = f"http://127.0.0.1:{served.port}"
        for subject in ("17", "18"):
            served.submit("echo", f"of subject-{subject}", wait=10, metadata={"subject": subject})
        unsure = command("erase", "--metadata", "subject=17", url=url)
        assert unsure.returncode == 2 and "--yes" in unsure.stderr, unsure
        assert command("erase", "--yes", url=url).returncode == 2
        done = command("erase", "--metadata", "subject=17", "--yes", "--json", url=url)
        assert (done.returncode, json.loads(done.stdout)) == (
            0,
            {"removed": 1, "running": 0, "done": True},
        ), done
        stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
        assert b"subject-17" not in stored and b"subject-18" in stored
        assert command("erase", "--tenant", "nobody", "--yes", url=url).stdout == "0 removed\n"
        assert served.stop() == 0


LOOKS = (
    "queues ls", "tasks", "jobs ls", "jobs show {job}", "jobs explain {job}", "wait echo", "crons ls",
    "submit echo --announce 20", "size --url {url} --wait-max 1s", "dead-letters ls", "dead-letters quarantine",
    "workers", "doctor --for 0.1s",
)  # fmt: skip
ADMINS_ALONE = {"workers"}


@pytest.mark.timeout(180)
def test_what_a_tenants_key_is_not_told_breaks_no_command_that_looks(tmp_path):
    key = new_key()
    (tmp_path / "keys.toml").write_text(file_of((key, "a", (Scope.SUBMIT, Scope.READ))))
    with Served(tmp_path / "served", env={"FOREBAY_KEYS_FILE": str(tmp_path / "keys.toml")}) as served:
        url = f"http://127.0.0.1:{served.port}"
        at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        later = ("submit", "echo", "1", "--run-at", at, "--json")
        refused = command(*later, url=url)
        assert (
            "an API key is required" in refused.stderr and "--api-key, or FOREBAY_API_KEY" in refused.stderr
        )
        job = json.loads(command(*later, url=url, key=key).stdout)["job_id"]
        for words in LOOKS:
            done = command(*words.format(url=url, job=job).split(), url=url, key=key)
            assert "internal error" not in done.stderr, (words, done.stderr)
            if words in ADMINS_ALONE:
                assert done.returncode == 1 and "lacks the scope admin" in done.stderr
            else:  # doctor and size may have something to say of the machine and the limits
                assert done.returncode in ((0, 1) if words.startswith(("doctor", "size")) else (0,)), (
                    words,
                    done,
                )
                assert done.stderr == "" and ("the key is a tenant's" in done.stdout or "doctor" not in words)
