"""The page on sources: its example runs as it stands, and its rows name what there is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from forebay import sinks, sources
from forebay.core.link import LinkState, Loss

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")


EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
PRINTED = [
    [f"door (480, 640, 3) {n}" for n in range(3)],
    ["{'faces': 2}"],
    [
        "most were lost in the sender's encoder: 60 of 1000 (6.0%), not encoded",
        "the sender's encoder 1000 60",
        "the sender's queue 940 10",
        "the basin 930 50",
        "the models, not answered yet 930 0",
    ],
]


@pytest.mark.parametrize(("code", "printed"), list(zip(EXAMPLES, PRINTED, strict=True)))
def test_an_example_prints_what_it_should(code, printed):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == printed
    assert printed[0].startswith("most") is (f"`{printed[0]}`" in PAGE)


def test_every_source_and_sink_has_its_row_and_every_state_and_loss_is_named():
    rows = set(re.findall(r"^\| `([a-z_0-9]+)\(", PAGE, re.MULTILINE))
    assert rows == (set(sources.__all__) | set(sinks.__all__)) - {"journey", "read_stats", "read_raw"}
    words = [state.value for state in LinkState] + [f"lost_{loss.value}" for loss in Loss]
    assert [
        word for word in [*words, "read_raw(path)", "journey", "read_stats"] if f"`{word}`" not in PAGE
    ] == []


def test_a_public_name_stays_one_whatever_was_imported_before():
    code = """
import pkgutil, importlib
from forebay import sinks, sources
for package in (sources, sinks):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    print([name for name in package.__all__ if not callable(getattr(package, name))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.stdout.splitlines() == ["[]", "[]"], done.stderr
