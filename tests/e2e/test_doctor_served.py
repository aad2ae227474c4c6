"""The doctor before what is really wrong: a process under a real quota, a server whose queue is paused."""

import json
import subprocess
import sys

import pytest

from forebay.cli.edge import run
from tests.e2e.harness import Served
from tests.pipeline.cgroups import cpu_group
from tests.waiting import until

BUSY = "print(1, flush=True)\nwhile True: pass"

APP = """
import forebay

app = forebay.App()


@app.task()
def echo(x):
    return x
"""


def doctor(capsys, *argv):
    capsys.readouterr()
    code = run(["doctor", "--json", *argv])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.timeout(120)
def test_m6_m7_work_that_wants_a_whole_processor_under_a_quota_of_a_tenth_is_told_to_get_it(capsys):
    with (
        cpu_group(0.1) as procs,
        subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as busy,
    ):
        try:
            procs.write_text(str(busy.pid))
            busy.stdout.readline()
            code, document = doctor(capsys, "--pid", str(busy.pid), "--for", "2s")
        finally:
            busy.kill()
    (found,) = [one for one in document["findings"] if one["cause"] == "cpu_throttled"]
    assert code == 1 and document["host"]["cpu"]["quota"] == 0.1
    assert document["host"]["cpu"]["used"] in (None, pytest.approx(0.1, abs=0.1))  # of its own group alone
    assert "allow 1 CPUs" in found["change"], found


def test_a_queue_that_is_paused_while_work_waits_is_named_until_it_is_resumed(tmp_path, capsys, monkeypatch):
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    with Served(tmp_path, tmp_path / "app.py", workers=1) as server:
        url = f"http://127.0.0.1:{server.port}"
        monkeypatch.setenv("FOREBAY_URL", url)
        assert run(["queues", "pause", "echo"]) == 0
        job = server.submit("echo", 1)
        code, document = doctor(capsys, "--for", "0.01s")
        assert [one for one in document["findings"] if one["of"] != "machine"] == [
            {
                "of": "task",
                "name": "echo",
                "cause": "paused",
                "evidence": "it is paused and 1 wait",
                "change": "forebay queues resume echo",
            }
        ]
        assert code == 1 and f"server {url}" in document["seen"]
        assert run(["queues", "resume", "echo"]) == 0
        server.final(job["job_id"])
        until(lambda: not of_server(doctor(capsys, "--for", "0.01s")[1]), 10, "nothing is wrong any more")


def of_server(document):
    return [one for one in document["findings"] if one["of"] != "machine"]
