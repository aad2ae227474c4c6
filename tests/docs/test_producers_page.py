"""The page on producers: its commands, its Python and its bash run; its numbers are those of the code."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.client import holding, policy
from forebay.core import accept_ratio, budget, retry_budget
from tests.e2e.harness import Served

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "producers.md").read_text(encoding="utf-8")
APP = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)[1]


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def started(tmp_path, **env):
    path = tmp_path / "shout.py"
    path.write_text(APP, encoding="utf-8")
    return Served(tmp_path, path, workers=1, env=env)


def run(argv, served, tmp_path, **env):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    clean["FOREBAY_URL"] = f"http://127.0.0.1:{served.port}"
    return subprocess.run(
        argv, env=clean | env, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_commands_and_the_python_of_the_page_run_as_printed(tmp_path):
    (tmp_path / "words.ndjson").write_text('"one"\n"two"\n"three"\n', encoding="utf-8")
    with started(tmp_path) as served:
        for line in [line[2:] for block in blocks("console") for line in block.splitlines()]:
            argv = [sys.executable, "-m", *line.replace("--timeout 5m", "--timeout 30s").split()]
            done = run(argv, served, tmp_path)
            assert done.returncode == 0, (line, done)
        printed = io.StringIO()
        page = "\n".join(blocks("python")).replace("Client(", f"Client('http://127.0.0.1:{served.port}', ")
        with contextlib.redirect_stdout(printed):
            names = {}
            exec(compile(page, "producers.md", "exec"), names)
        names["client"].close()
        assert printed.getvalue().startswith("PAGE 19!\n1200 jobs fit at once")
        assert [one["name"] for one in served.get("/v1/budgets").json["items"]] == ["ci"]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_bash_of_the_page_submits_each_line_once_in_the_pace_of_the_budget(tmp_path):
    script = tmp_path / "submit.sh"
    script.write_text(blocks("bash")[0], encoding="utf-8")
    (tmp_path / "lines.ndjson").write_text("".join(f'"{n}"\n' for n in range(30)), encoding="utf-8")
    with started(tmp_path, FOREBAY_QUEUE_MAX="200") as served:
        argv = ["bash", str(script), "echo", "lines.ndjson"]
        for _ in range(2):  # the second time it submits nothing
            done = run(argv, served, tmp_path, BUDGET="ci=20/s", ROOM="100", RUN="run-1")
            assert (done.returncode, done.stdout, done.stderr) == (0, "30 submitted\n", "")
        jobs = served.get("/v1/jobs?limit=500").json["items"]
        assert len(jobs) == 30
        (shared,) = served.get("/v1/budgets").json["items"]
        assert shared["rate_per_s"] == 20.0 and shared["granted"] >= 30
        refused = run(["bash", str(script), "nope", "lines.ndjson"], served, tmp_path, BUDGET="ci")
        assert refused.returncode == 1 and 'refused for good: "0" (404)' in refused.stderr


def test_the_numbers_of_the_page_are_those_of_the_code():
    for text in (
        f"{policy.BASE_S * 1000:.0f}, 200, 400, 800 ms … {policy.CAP_S:.0f} s",
        f"at most {policy.SPREAD_MAX_S:.0f} s",
        f"{retry_budget.RETRY_SHARE:.0%}".replace("%", " %"),
        f"and {retry_budget.RETRIES_PER_S:.0f} a second, and {retry_budget.RETRIES_HELD_MAX:.0f} at once",
        f"(calls - {accept_ratio.ACCEPT_FACTOR:.0f} × taken) / (calls + 1)` of the last {accept_ratio.WINDOW_S:.0f} seconds",
        f"waits at most {policy.INTERACTIVE_MAX_S:.0f} s",
        f"waits up to {policy.BATCH_MAX_S:.0f} s",
        f"a server keeps {budget.BUDGETS_MAX:,}, of one tenant {budget.TENANT_BUDGETS_MAX}",
    ):
        assert text in PAGE, text
    assert (accept_ratio.TRICKLE_PER_S, accept_ratio.WELL_S, holding.HOLDS_MAX) == (10.0, 1.0, 3)
    assert budget.IDLE_S == 60.0 and budget.BURST_S == 0.2, "a minute; a fifth of a second"
    assert policy.floor_s(0.05) == 0.025 and policy.floor_s(1.0) == 0.5
