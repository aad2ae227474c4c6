"""The page on sizing: every command on it runs and prints what the page shows."""

import re
import shlex
from pathlib import Path

import pytest

from forebay.cli.edge import run
from forebay.core.sizing import findings, platform
from tests.e2e.harness import Served

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sizing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n\$ forebay (size .*)\n((?:.*\n)*?)```", PAGE, re.MULTILINE)
SHOWN = [(command, shown) for command, shown in BLOCKS if "--url" not in command]

NOES = (
    "--health-check 30s",
    "--replicas 1",
    "--queue-max 5000",
    "--p999 35s",
)  # the commands whose answer is no

APP = """
import time

import forebay

app = forebay.App()


@app.task()
def echo(x):
    time.sleep(0.01)
    return x
"""


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command for command, _ in SHOWN])
def test_a_command_of_the_page_prints_what_the_page_shows(command, shown, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("arrivals.csv").write_text("count\n" + "60\n" * 300 + "400\n" + "60\n" * 300, encoding="utf-8")
    code = run(shlex.split(command))
    out, err = capsys.readouterr()
    assert (out, err) == (shown, "")
    assert code == any(words in command for words in NOES)


def test_the_command_for_a_server_runs(tmp_path, capsys):
    (command,) = [command for command, _ in BLOCKS if "--url" in command]
    path = tmp_path / "app.py"
    path.write_text(APP, encoding="utf-8")
    with Served(tmp_path, path, workers=1) as server:
        server.submit_many([{"task": "echo", "payload": n} for n in range(30)])
        server.submit("echo", 0, wait=20)
        argv = shlex.split(command.replace("http://127.0.0.1:8080", f"http://127.0.0.1:{server.port}"))
        code = run(argv)
        out = capsys.readouterr().out
        assert code in (0, 1) and re.search(r"^there are +1: ", out, re.MULTILINE) and "\nverdict" in out
        server.stop()


def test_the_page_names_every_contradiction():
    texts = "".join(Path(module.__file__).read_text() for module in (findings, platform))
    codes = set(re.findall(r'Finding\(\s*"(\w+)"|_too_long\(has, "(\w+)"', texts))
    named = {first or second for first, second in codes}
    assert len(named) >= len(findings.RULES) + len(platform.RULES)
    assert [code for code in sorted(named) if f"| `{code}` |" not in PAGE] == []
    assert [code for code in re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) if code not in named] == []
