"""`forebay chaos` against a real server: every fault, and that it says no when jobs do not end well."""

import json
import os

import pytest

from forebay.cli.chaos import is_worker
from forebay.cli.edge import run
from tests.client.basin import Basin
from tests.e2e.harness import Served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with Served(tmp_path_factory.mktemp("chaos"), "chaos.py", workers=2) as server:
        yield f"http://127.0.0.1:{server.port}"


def report(capsys, *argv):
    code = run(["chaos", *argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("fault", ["kill", "slow", "squeeze"])
def test_j5_j7_j8_no_job_is_lost_and_the_reaction_is_told(url, capsys, fault):
    code, told = report(capsys, url, "Nap", "0.05", "--fault", fault, "--jobs", "80", "--for", "500ms")
    assert (code, told["good"], told["lost"]) == (0, True, [])
    assert told["by_status"] == {"COMPLETED": 80} and told["reaction_s"] > 0
    assert told["fault"] == fault and (fault == "squeeze" or "pid" in told["hit"])


def test_j6_a_poison_pill_is_given_up_alone(url, capsys):
    code, told = report(capsys, url, "Nap", "0.05", "--fault", "poison", "--poison=-1", "--jobs", "40")
    assert (code, told["by_status"]) == (0, {"COMPLETED": 40})


def test_a_poison_that_is_none_is_no_success(url, capsys):
    code, told = report(capsys, url, "Nap", "0.05", "--fault", "poison", "--poison", "0.01", "--jobs", "10")
    assert code == 1 and not told["good"] and told["by_status"] == {"COMPLETED": 10}


def test_jobs_that_fail_are_no_success(url, capsys):
    code, told = report(capsys, url, "fail", "0.2", "--jobs", "10", "--fault", "slow", "--for", "100ms")
    assert code == 1 and told["by_status"] == {"FAILED": 10} and not told["good"]


def test_nothing_but_a_worker_is_ever_hit(capsys, monkeypatch):
    assert not is_worker(os.getpid()) and not is_worker(1) and not is_worker(2**22 + 1)
    hits = []
    monkeypatch.setattr(os, "kill", lambda *what: hits.append(what))
    with Basin() as basin:
        assert run(["chaos", basin.url, "echo", "1", "--jobs", "3", "--timeout", "300ms"]) == 1
    assert hits == [] and "worker" in capsys.readouterr().err


WRONG = [
    (["--fault", "flood"], "--fault"), (["--poison", "1"], "go together"), (["--fault", "poison"], "go together"),
    (["--jobs", "0"], "--jobs"), (["--for", "x"], "--for"), (["--fault", "poison", "--poison", "{"], "not JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("argv", "told"), WRONG)
def test_what_makes_no_sense_is_exit_code_2_and_submits_nothing(capsys, argv, told):
    assert run(["chaos", "http://127.0.0.1:9", "T", *argv]) == 2
    assert told in capsys.readouterr().err
