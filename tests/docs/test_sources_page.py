"""The page on sources: its example runs as it stands, and its rows name what there is."""

import re
import subprocess
import sys
from pathlib import Path

from forebay import sources
from forebay.core.link import LinkState, Loss

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")


def test_the_first_example_prints_its_frames():
    (first, *_) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    done = subprocess.run([sys.executable, "-c", first], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"door (480, 640, 3) {n}" for n in range(3)]


def test_every_source_has_its_row_and_every_state_and_loss_is_named():
    rows = set(re.findall(r"^\| `([a-z_]+)\(", PAGE, re.MULTILINE))
    assert rows == set(sources.__all__)
    words = [state.value for state in LinkState] + [f"lost_{loss.value}" for loss in Loss]
    assert [word for word in words if f"`{word}`" not in PAGE] == []
