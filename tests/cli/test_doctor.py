"""`forebay doctor`: what it looks at, what it says it could not see, and its exit codes."""

import json
import os
from pathlib import Path

import pytest

from forebay.cli.doctor_served import _unready
from forebay.cli.edge import run
from forebay.cli.scrape import clock_ahead_s
from forebay.client.wire import Answer, Lost
from tests.cli.calling import calls
from tests.ports import free_port

INSPECT = {"Name": "/detector", "HostConfig": {"NanoCpus": 2_000_000_000}, "State": {"OOMKilled": True}}


@pytest.fixture
def doctor(monkeypatch, tmp_path, capsys):
    """Return a function that runs the command in an empty directory: (exit code, out, err)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FOREBAY_URL", raising=False)
    return calls(capsys, "doctor", "--for", "0.01s")


def test_m9_a_container_at_1_8_of_2_gib_with_one_cpu_busy_is_told_both(doctor):
    with open("stats.json", "w") as file:
        json.dump({"Name": "detector", "CPUPerc": "100.02%", "MemUsage": "1.8GiB / 2GiB"}, file)
    with open("inspect.json", "w") as file:
        host = {"CpuQuota": 200_000, "CpuPeriod": 100_000, "Memory": 2 << 30}
        json.dump([{"Name": "/detector", "HostConfig": host}], file)
        file.write(Path("stats.json").read_text())
    code, out, _ = doctor("--inspect", "inspect.json", "--json")
    found = [one["cause"] for one in json.loads(out)["findings"] if one["of"] == "container"]
    assert code == 1 and found == ["memory_nearly_full", "one_cpu_busy"]


def test_a_container_is_asked_of_by_docker_itself(doctor, tmp_path, monkeypatch):
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\ntest $1 = inspect && echo '[{json.dumps(INSPECT)}]'\nexit 0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    code, out, _ = doctor("--container", "detector")
    assert code == 1 and "OOMKilled" in out and "container detector" in out


def test_a_docker_that_says_no_is_one_line(doctor, tmp_path, monkeypatch):
    program = tmp_path / "docker"
    program.write_text('#!/bin/sh\necho "No such object: $3\x1b[31m" >&2\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    code, out, err = doctor("--container", "nope")
    assert (
        (code, out) == (3, "")
        and "No such object: nope" in err
        and err.count("\n") == 1
        and "\x1b" not in err
    )


@pytest.mark.parametrize(
    ("argv", "code", "told"),
    [
        (["--pid", "4194304"], 2, "--pid: there is no process"),
        (["--pid", "x"], 2, "--pid"),
        (["--inspect", "nope.json"], 2, "--inspect nope.json: No such file"),
        (["--inspect", "."], 2, "--inspect"),
        (["--url", "http://127.0.0.1:9"], 3, "cannot reach"),
    ],
)
def test_what_cannot_be_looked_at_is_one_line(doctor, argv, code, told):
    found, out, err = doctor(*argv)
    assert (found, out) == (code, "") and told in err and err.count("\n") == 1


def test_a_window_is_bounded(capsys):
    assert run(["doctor", "--for", "1h"]) == 2
    assert "--for: '1h' is more than 600s" in capsys.readouterr().err


def test_without_a_server_the_machine_is_looked_at_and_it_is_said(doctor, tmp_path):
    # Somebody may serve on this machine, where it is looked for by default.
    (tmp_path / "forebay.toml").write_text(f'url = "http://127.0.0.1:{free_port()}"\n')
    code, out, _ = doctor("--json")
    document = json.loads(out)
    assert code == (0 if document["good"] else 1) and document["seen"] == ["this machine"]
    assert any(line.startswith("server:") for line in document["unseen"])
    assert document["host"]["cpu"]["there"] >= 1 and document["host"]["disks"][0]["size_b"] > 0


@pytest.mark.parametrize(
    ("date", "before", "after", "ahead_s"),
    [
        ("Tue, 01 Dec 2026 00:00:10 GMT", 10.2, 10.3, 0.0),
        ("Tue, 01 Dec 2026 00:00:10 GMT", 10.99, 11.2, 0.0),
        ("Tue, 01 Dec 2026 00:00:15 GMT", 10.2, 10.3, 4.7),
        ("Tue, 01 Dec 2026 00:00:05 GMT", 10.2, 10.3, -4.2),
        ("Tue, 01 Dec 2026 00:00:05 GMT", 10.2, 12.3, None),  # a slow call says nothing
        ("yesterday", 10.2, 10.3, None),
        ("", 10.2, 10.3, None),
    ],
)
def test_clocks_differ_by_what_neither_the_second_nor_the_call_can_explain(date, before, after, ahead_s):
    midnight = 1796083200.0
    found = clock_ahead_s(date, midnight + before, midnight + after)
    assert found == (None if ahead_s is None else pytest.approx(ahead_s, abs=1e-6))


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Answer(200, {}, b'{"status": "ready"}'), ""),
        (Answer(503, {}, b'{"status": "unready", "reason": "store_full"}'), "store_full"),
        (Answer(503, {}, b"no JSON"), "it says no more"),
        (Answer(404, {}, b"{}"), ""),
        (Lost("gone", sent=True), ""),
    ],
)
def test_a_server_is_asked_once_whether_it_is_ready_and_no_is_an_answer(reply, reason):
    asking = _unready()
    assert next(asking).path == "/readyz"
    with pytest.raises(StopIteration) as told:
        asking.send(reply)
    assert told.value.value == reason
