"""The import law bites: each planted violation breaks the contract that is there for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# (where, what is added there, the contract that must break)
VIOLATIONS = [
    ("core/settle.py", "import time", "Decisions touch nothing"),
    ("core/retry.py", "import msgspec", "Decisions touch nothing"),
    ("core/job.py", "import forebay.clock", "Imports point down"),
    ("node/lane.py", "import forebay.server.wire", "Imports point down"),
    ("server/wire.py", "import forebay.node.lane", "Imports point down"),
    ("streams/ring.py", "import forebay.server.wire", "Imports point down"),
    ("streams/ring.py", "import psutil", "A queue of frames is light"),
    ("handy.py", "import forebay.core.job", "Imports point down"),
    ("sim/planted.py", "import asyncio", "The simulator is built from core alone"),
    ("sim/planted.py", "import forebay.brokers.memory", "The simulator is built from core alone"),
    ("declare/app.py", "import msgspec", "What users write needs the standard library only"),
    ("child/codec.py", "import forebay.node.lane", "A child knows declarations, frames and core"),
    ("child/codec.py", "import fastapi", "A child knows declarations, frames and core"),
    ("cli/jobs.py", "import forebay.brokers.memory", "Only the composition root knows adapters"),
    ("server/wire.py", "import forebay.observe.logs", "Only the composition root knows adapters"),
    ("brokers/memory.py", "import forebay.brokers.sqlite.rows", "No broker knows another"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "line", "contract"), VIOLATIONS, ids=lambda value: str(value).split("/")[-1]
)
def test_a_planted_violation_breaks_its_contract(tmp_path, where, line, contract):
    shutil.copytree(
        ROOT / "src" / "forebay", tmp_path / "forebay", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    planted = tmp_path / "forebay" / where
    planted.parent.mkdir(exist_ok=True)
    (planted.parent / "__init__.py").touch()
    before = planted.read_text() if planted.exists() else ""
    planted.write_text(f"{before}\n\ndef planted():\n    {line}\n")
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=50,
    )
    broken = [text for text in done.stdout.splitlines() if " BROKEN" in text]
    assert done.returncode == 1
    assert any(text.startswith(contract) for text in broken), done.stdout
