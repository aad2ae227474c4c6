"""The page on frames: its examples run as they stand, and its tables name what there is."""

import re
import subprocess
import sys
from pathlib import Path

from forebay.core.buffer import OnFull, Reason

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "streams.md").read_text(encoding="utf-8")
FIRST, SECOND, IN_PLACE, PIPELINE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_first_example_prints_its_frames(tmp_path):
    script = tmp_path / "frames_page.py"
    script.write_text(FIRST, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    shapes = [f"{n} (480, 640, 3) {n} False" for n in range(3)]
    assert done.stdout.splitlines() == [*shapes, "3 {}"]


def test_the_examples_of_a_policy_and_of_a_place_hold():
    head = FIRST.partition("def watch")[0]
    done = subprocess.run(
        [sys.executable, "-c", head + SECOND + IN_PLACE], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr


def test_the_example_of_a_pipeline_prints_its_results(tmp_path):
    script = tmp_path / "pipeline_page.py"
    script.write_text(PIPELINE, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*(f"{n} {{'bright': 0}} 0" for n in range(10)), "10 10 0"]


def test_every_reason_and_policy_has_its_row():
    rows = set(re.findall(r"^\| `\"?([a-zA-Z_]+)\"?[`(]", PAGE, re.MULTILINE))
    assert {reason.value for reason in Reason} <= rows
    assert {policy.value for policy in OnFull if policy is not OnFull.BACKOFF} | {"Backoff"} <= rows
