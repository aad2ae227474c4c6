"""`forebay serve --json`: standard error is JSON from the first line to the last."""

import json
import os
import signal
import subprocess
import sys

from tests.e2e.harness import APPS
from tests.waiting import until


def started(tmp_path, *options, app=APPS / "basic.py", **env):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    command = [sys.executable, "-m", "forebay", "serve", str(app), "--port", "0", "--workers", "1", *options]
    with (tmp_path / "log").open("w") as log:
        return subprocess.Popen(command, cwd=tmp_path, env=clean | env, stderr=log, stdout=subprocess.DEVNULL)


def lines(tmp_path):
    return [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]


def served_and_stopped(tmp_path, *options, **env):
    with started(tmp_path, *options, **env) as server:
        until(lambda: '"serving"' in (tmp_path / "log").read_text(), 30.0, "the banner")
        server.send_signal(signal.SIGTERM)
        assert server.wait(40) == 0
    return lines(tmp_path)


def test_with_json_every_line_is_an_object_and_the_first_tells_where_it_serves(tmp_path):
    told = served_and_stopped(tmp_path, "--json", "--log-level", "error")
    serving = next(line for line in told if line["event"] == "serving")
    assert serving["url"].startswith("http://127.0.0.1:") and serving["tasks"] and serving["replicas"] >= 1
    assert any(line["event"] == "draining" for line in told)


def test_the_setting_does_the_same_as_the_flag(tmp_path):
    assert any(line["event"] == "serving" for line in served_and_stopped(tmp_path, FOREBAY_LOG_FORMAT="json"))


def test_what_cannot_start_says_so_in_json_too(tmp_path):
    with started(tmp_path, "--json", app=tmp_path / "nothing.py") as server:
        assert server.wait(40) == 2
    (told,) = lines(tmp_path)
    assert told["event"] == "cannot_start" and "no such file" in told["error"]
