"""Whoever dies, at whatever line: every slot comes back, and every frame is counted exactly once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run(script, *arguments, wait_max_s):
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        capture_output=True,
        text=True,
        timeout=wait_max_s,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
    )
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}\n{done.stdout}"
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("move", ["put", "blank", "warm", "rest", "evict", "get", "late", "release", "audit"])
def test_a_death_at_any_line_of_a_move_loses_no_slot_and_no_count(move):
    said = run("deaths.py", move, wait_max_s=180)
    assert said["found"] == []
    assert said["deaths"] > 15  # the move has lines, and it was killed at each


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("policy", "kills"), [("drop_oldest", 500), ("block", 100), ("drop_newest", 100), ("latest_only", 100)]
)
def test_after_kills_at_random_nothing_is_stuck_lost_or_torn(policy, kills):
    said = run("campaign.py", "20260713", str(kills), policy, "360", wait_max_s=380)
    assert said["raised"] == "", said
    assert (said["stuck"], said["unaccounted"], said["slots_missing"], said["torn"]) == (0, 0, 0, 0), said
    assert (said["held"], said["queued"]) == (0, said["depth"]), said
    assert said["served"] > kills, said
