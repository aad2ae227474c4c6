"""Cron entries through a real server that is killed at the due time, again and again."""

import json
import os
import subprocess
import sys
import time
from collections import Counter

import pytest

from tests.e2e.harness import Served
from tests.waiting import until

pytestmark = [pytest.mark.timeout(240), pytest.mark.slow]
PERIOD_S = 2


def forebay(server, *words):
    command = [sys.executable, "-m", "forebay", *words, "--url", f"http://127.0.0.1:{server.port}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=dict(os.environ))


def jobs_of(server):
    """Return the due instants of all jobs of the entry, oldest first."""
    items, cursor = [], None
    while True:
        path = "/v1/jobs?metadata.cron=tick&limit=100" + (f"&cursor={cursor}" if cursor else "")
        page = server.get(path).json
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return [job["metadata"]["due_at"] for job in reversed(items)]


def test_a_server_killed_at_the_due_time_again_and_again_makes_one_job_of_each(tmp_path):
    with Served(tmp_path, "crons.py") as server:
        until(lambda: jobs_of(server), 30, "the first run")
        for delay_s in (0.0, 0.005, 0.02, 0.05, 0.1, -0.02):
            count, now = len(jobs_of(server)), time.time()
            time.sleep(PERIOD_S - now % PERIOD_S + delay_s)
            server.kill()
            server.start()
            # Else the next instant may be so near that what was missed is not made up for before it.
            until(lambda most=count: len(jobs_of(server)) > most, 30, "a run since the look before the kill")
        count = len(jobs_of(server))
        until(lambda: len(jobs_of(server)) > count, 30, "a run after the last start")
        due = jobs_of(server)
        assert max(Counter(due).values()) == 1, due
        assert all(int(text[17:19]) % PERIOD_S == 0 for text in due), due
        assert len(due) >= 7, due
        assert server.stop() == 0


def test_what_was_missed_runs_once_and_the_command_line_shows_pauses_and_resumes(tmp_path):
    with Served(tmp_path, "crons.py") as server:
        until(lambda: jobs_of(server), 30, "the first run")
        assert server.stop() == 0
        down_at = time.time()
        until(lambda: time.time() > down_at + 3 * PERIOD_S, 60, "three runs missed")
        up_at = time.time()
        server.start()
        until(lambda: any(seconds(text) > down_at for text in jobs_of(server)), 30, "a run after the start")
        made_up = [text for text in jobs_of(server) if down_at < seconds(text) < up_at]
        assert len(made_up) <= 1, "of several missed ones the last alone"
        listed = forebay(server, "crons", "ls")
        assert listed.returncode == 0 and "tick" in listed.stdout and f"every {PERIOD_S} s" in listed.stdout
        paused = forebay(server, "crons", "pause", "tick")
        assert (paused.returncode, paused.stdout) == (0, "tick is paused\n")
        count = len(jobs_of(server))
        shown = json.loads(forebay(server, "crons", "ls", "--json").stdout)
        assert shown[0]["paused"] is True and shown[0]["next_run_at"] is None
        paused_at = time.time()
        until(lambda: time.time() > paused_at + 2 * PERIOD_S, 60, "two periods of pause")
        assert len(jobs_of(server)) == count
        assert forebay(server, "crons", "resume", "tick").stdout.startswith("tick is resumed; next run 2")
        until(lambda: len(jobs_of(server)) > count, 30, "a run after the resume")
        assert forebay(server, "crons", "pause", "nobody").returncode == 1
        assert server.stop() == 0


def seconds(text):
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def test_a_wrong_entry_is_one_line_at_the_start(tmp_path):
    app = tmp_path / "wrong.py"
    app.write_text(
        'import forebay\napp = forebay.App()\n\n@app.every(cron="0 25 * * *")\ndef nightly() -> None: ...\n'
    )
    command = [sys.executable, "-m", "forebay", "serve", str(app), "--port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert ended.returncode == 2
    assert "cron entry nightly: cron: hour must be from 0 to 23, not '25'" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
