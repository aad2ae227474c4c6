"""`forebay lint`: files and directories, exit codes, JSON and SARIF."""

import json

import pytest

from forebay.cli import lint
from forebay.cli.edge import run
from forebay.core.linting import RULES

BAD = "import queue\nfirst = queue.Queue()\n"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "work.py").write_text(BAD)
    (tmp_path / "app" / "notes.md").write_text("queue.Queue()")
    (tmp_path / ".venv" / "lib").mkdir(parents=True)
    (tmp_path / ".venv" / "lib" / "other.py").write_text(BAD)
    (tmp_path / "app" / "picture.py").write_bytes(b"\0queue.Queue()")
    (tmp_path / "hpa.yaml").write_text("apiVersion: autoscaling/v2beta2\nkind: HorizontalPodAutoscaler\n")
    return tmp_path


def test_a_directory_is_looked_through_but_for_what_others_wrote(tree, capsys):
    assert run(["lint", "."]) == 1
    out = capsys.readouterr().out
    assert "app/work.py:2: warning code-unbounded-queue: queue.Queue() has no bound" in out
    assert "hpa.yaml:1: error hpa-removed-api" in out and ".venv" not in out
    assert out.splitlines()[-1] == "2 files, 2 findings"


def test_what_is_found_decides_the_exit_code_by_its_level(tree, capsys):
    assert run(["lint", "app/work.py", "--level", "error"]) == 0
    assert run(["lint", "hpa.yaml", "--level", "error"]) == 1
    assert run(["lint", "app/notes.md"]) == 0
    assert "0 files, 0 findings" in capsys.readouterr().out


def test_as_json(tree, capsys):
    assert run(["lint", "app", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["files"] == 1
    assert told["findings"][0] | {"evidence": "", "change": ""} == {
        "path": "app/work.py", "line": 2, "rule": "code-unbounded-queue", "level": "warning", "evidence": "", "change": "",
    }  # fmt: skip


def test_as_sarif_each_result_names_its_rule_and_place(tree, capsys):
    assert run(["lint", ".", "--sarif"]) == 1
    told = json.loads(capsys.readouterr().out)
    (one,) = told["runs"]
    rules = one["tool"]["driver"]["rules"]
    assert told["version"] == "2.1.0" and {rule["id"] for rule in rules} <= set(RULES)
    for result in one["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["locations"][0]["physicalLocation"]["region"]["startLine"] >= 1
        assert result["level"] in {"error", "warning", "note"} and result["message"]["text"]


def test_the_rules_are_listed(capsys):
    assert run(["lint", "--rules"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(RULES)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "PATH"), (["no/such"], "no such file"), (["hpa.yaml", "--level", "bad"], "--level"),
        (["hpa.yaml", "--sarif", "--json"], "cannot both be"), (["hpa.yaml", "--per-replica", "x"], "--per-replica"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_exit_code_2(tree, capsys, argv, told):
    assert run(["lint", *argv]) == 2
    assert told in capsys.readouterr().err


def test_the_number_of_files_is_bounded(tree, monkeypatch, capsys):
    monkeypatch.setattr(lint, "FILES_MAX", 2)
    assert run(["lint", "."]) == 2
    assert "more than 2 files" in capsys.readouterr().err
