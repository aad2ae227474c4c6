"""Commands that pages, messages and comments tell people to type are there."""

import re
from pathlib import Path

import typer.main

from forebay.cli.app import app

ROOT = Path(__file__).parents[2]
NAMED = re.compile(
    r"(?:`|^ *(?:\$ )?|\bor |[;,] |(?<!b)\")forebay ([a-z][a-z-]*(?: [a-z][a-z0-9-]*)?)", re.MULTILINE
)
NO_COMMANDS = {"link v1"}  # what signed links sign begins so
PLACES = [
    *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*"),
    *(ROOT / "src").rglob("*.py"), *(ROOT / "deploy").rglob("*"),
]  # fmt: skip


def test_every_command_that_is_named_is_there():
    root = typer.main.get_command(app)
    wrong, seen = [], set()
    for place in (one for one in PLACES if one.is_file()):
        for words in set(NAMED.findall(place.read_text(encoding="utf-8"))) - NO_COMMANDS:
            first, _, second = words.partition(" ")
            found = root.commands.get(first)
            below = getattr(found, "commands", None)
            seen.add(first)
            if found is None or (below is not None and second and second not in below):
                wrong.append(f"{place.relative_to(ROOT)}: forebay {words}")
    assert wrong == [], "\n".join(wrong)
    assert seen >= {"serve", "submit", "doctor", "migrate", "dead-letters"}
