"""Docs cannot lie: generated pages are fresh, links lead somewhere, decisions are complete."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.config import Settings, load_settings
from forebay.core.lifecycle import Event, State

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "changelog.d").glob("*.md")])
DECISIONS = sorted((ROOT / "docs" / "adr").glob("*.md"))
PARTS = (
    "**Context.**",
    "**Decision.**",
    "**Alternatives.**",
    "**Consequences.**",
    "**We would notice it was wrong**",
)
KINDS = {"added", "changed", "fixed", "removed", "deprecated", "storage", "security"}


def short(path):
    return str(path.relative_to(ROOT))


def test_generated_pages_say_what_the_code_says():
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_a_default_of_the_settings_page_written_into_a_file_is_the_default(tmp_path):
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `(\w+)` \| `FOREBAY_\w+` \| `?(.*?)`? \|", text, re.MULTILINE))
    given = {name: value for name, value in told.items() if value != "none"}
    assert list(told) == list(Settings.__struct_fields__) and len(given) > 30
    assert load_settings(given, {}, tmp_path) == Settings()


def test_the_lifecycle_page_names_every_state_and_event():
    text = (ROOT / "docs" / "lifecycle.md").read_text(encoding="utf-8")
    missing = [word.value for word in [*State, *Event] if f"| `{word.value}` |" not in text]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_a_link_between_pages_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not broken, f"{short(page)} links to what is not there: {broken}"


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_is_complete_and_short(page):
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {page.stem[:4]} ")
    assert [part for part in PARTS if part not in text] == []
    assert len(text.split()) <= 450, "a decision is read in two minutes"


def test_decisions_are_numbered_without_gaps_and_listed():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert [page.name[:4] for page in DECISIONS] == [f"{n:04}" for n in range(1, len(DECISIONS) + 1)]
    assert [page.name for page in DECISIONS if f"adr/{page.name}" not in index] == []


def test_changelog_fragments_have_a_kind():
    fragments = [page for page in (ROOT / "changelog.d").glob("*") if page.name != "README.md"]
    wrong = [
        page.name
        for page in fragments
        if page.suffixes[-1:] != [".md"] or page.name.split(".")[-2] not in KINDS
    ]
    assert not wrong, f"NAME.KIND.md with KIND one of {sorted(KINDS)}: {wrong}"
