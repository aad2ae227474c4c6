"""`forebay deploy`: files, sizes from a load, and what it refuses."""

import json

import pytest
import yaml

from forebay.cli.edge import run

SIZES = ["--peak", "60/s", "--service", "50ms", "--wait-max", "200ms"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("place", ["compose", "k8s", "aws", "systemd"])
def test_each_place_is_written_and_named_and_not_written_over(place, here, capsys):
    assert run(["deploy", place, "app.py", "--task", "Detect"]) == 0
    out = capsys.readouterr().out
    written = sorted(f"deploy-{place}/{one.name}" for one in (here / f"deploy-{place}").iterdir())
    assert out.splitlines()[1:] == written and "defaults" in out.splitlines()[0]
    assert run(["deploy", place, "app.py"]) == 1
    assert "is there already" in capsys.readouterr().err
    assert run(["deploy", place, "app.py", "--force"]) == 0


def test_sizes_follow_from_the_load_as_forebay_size_has_them(here, capsys):
    assert run(["size", *SIZES, "--json"]) == 0
    size = json.loads(capsys.readouterr().out)
    assert run(["deploy", "k8s", "app.py", *SIZES, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["model"]["nodes_max"] == size["replicas"]["needed"] == 4
    assert told["model"]["queue_max"] == size["settings"]["queue_max"]
    (hpa,) = yaml.safe_load_all((here / "deploy-k8s" / "hpa.yaml").read_text())
    assert hpa["spec"]["metrics"][0]["external"]["target"]["averageValue"] == "3"
    assert "4 replicas" in (here / "deploy-k8s" / "hpa.yaml").read_text().splitlines()[0]


def test_several_workers_in_a_process_need_fewer_processes_with_a_larger_target(here, capsys):
    assert run(["deploy", "k8s", "app.py", *SIZES, "--workers", "2", "--json"]) == 0
    model = json.loads(capsys.readouterr().out)["model"]
    assert (model["workers"], model["nodes_max"], model["target"], model["cpus"]) == (2, 2, 6, 2.0)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--peak", "60/s"], "--peak needs --service"), (["--service", "50ms"], "--peak is missing"),
        (["--nodes-min", "5", "--nodes-max", "2"], "--nodes-min 5"), (["--name", "Big One"], "--name"),
        (["--gpus", "some"], "--gpus"), (["--workers", "0"], "--workers"), (["--memory", "lots"], "--memory"),

    ],
)  # fmt: skip
def test_what_makes_no_sense_is_exit_code_2_and_writes_nothing(here, capsys, argv, told):
    assert run(["deploy", "compose", "app.py", *argv]) == 2
    assert told in capsys.readouterr().err and list(here.iterdir()) == []
