"""`forebay conform`: what holds, what does not apply and why, exit codes, and nothing is left behind."""

import json
import re
from pathlib import Path

import pytest

from forebay.brokers.memory import MemoryBroker
from forebay.conformance.fixtures import RETENTION_S
from forebay.errors import StoreUnavailableError
from forebay.ports.broker import Capabilities
from tests.cli.calling import calls

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"


@pytest.fixture
def conform(capsys):
    """Return a function that runs the command and returns (exit code, out, err)."""
    return calls(capsys, "conform")


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """Return a function that makes a module of somebody else's engine and returns its name."""
    monkeypatch.chdir(tmp_path)

    def made(text):
        name = f"engine_{abs(hash(text))}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return made


class Kept:
    """A Subject that tells what became of it."""

    reopen = None
    made = None

    def __init__(self, url):
        type(self).made = self
        self.url = url
        self.removed = 0

    async def open(self):
        return MemoryBroker(retention_s=RETENTION_S)

    async def remove(self):
        self.removed += 1


class Away(Kept):
    async def open(self):
        raise StoreUnavailableError("nobody answers at mine")


class Forgets(Kept):
    async def open(self):
        class Forgetful(MemoryBroker):
            async def get(self, job_id, *, now):
                return None

        return Forgetful(retention_s=RETENTION_S)


class Loose(Kept):
    async def open(self):
        broker = MemoryBroker(retention_s=RETENTION_S)
        broker.capabilities = Capabilities(durable=False, ordered=False)
        return broker


def test_every_check_that_applies_holds_for_the_reference_and_the_rest_says_why_not(conform):
    code, out, err = conform("memory:")
    *lines, summary = out.splitlines()
    assert (code, err) == (0, "")
    assert {line.split()[0] for line in lines} == {"ok", "n/a"}
    reasons = {line.partition(": ")[2] for line in lines if line.startswith("n/a")}
    assert reasons == {"what it answered is not kept when its process dies"}
    counted = [sum(line.startswith(word) for line in lines) for word in ("ok", "FAILED", "n/a")]
    assert summary == "{} passed, {} failed, {} do not apply".format(*counted)


def test_an_engine_of_files_leaves_none(conform, tmp_path):
    code, out, _ = conform(f"sqlite:{tmp_path}", "--only", "what_was_running", "--json")
    report = json.loads(out)
    assert code == 0 and report["ok"] and report["capabilities"]["durable"]
    assert len(report["passed"]) >= 2 and report["not_applicable"] == []
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_breaks_the_contract_is_told_so(conform):
    code, out, _ = conform("mine://x", "--engine", f"{__name__}:Forgets", "--only", "stored")
    failed = [line for line in out.splitlines() if line.startswith("FAILED")]
    assert code == 1 and failed and "is not there" in failed[0]
    assert Forgets.made.removed == 1 and Forgets.made.url == "mine://x"


def test_what_an_engine_says_it_cannot_do_is_not_held_against_it(conform):
    code, out, _ = conform("mine:", "--engine", f"{__name__}:Loose")
    assert code == 0
    assert "n/a" in out and "it does not keep the exact order of leases" in out


def test_an_engine_out_of_reach_is_one_line_and_code_3(conform):
    code, out, err = conform("mine:", "--engine", f"{__name__}:Away")
    assert (code, out, err) == (3, "", "forebay: nobody answers at mine\n")
    assert Away.made.removed == 1


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("mysql://x",), "no engine for 'mysql': memory:, sqlite:"),
        (("mine:", "--engine", "no_such_module:x"), "cannot import no_such_module"),
        (("mine:", "--engine", "json:no_such"), "json has no 'no_such'"),
        (("mine:", "--engine", "json"), "write module:factory"),
        (("mine:", "--engine", "pathlib:PurePath"), "what it makes has no 'open'"),
        (("memory:", "--only", "no_such_check"), "no check of that name"),
        (("sqlite:/dev/null/x",), "/dev/null/x: "),
        (("postgresql://h/db?no_such=1",), "no_such"),
    ],
)
def test_what_cannot_be_checked_is_one_line_and_code_2(conform, argv, told):
    code, out, err = conform(*argv)
    assert code == 2 and out == "" and told in err and err.count("\n") == 1, err


def test_the_engine_of_the_page_runs_and_an_entry_point_names_one(conform, theirs, monkeypatch):
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (text,) = [block for block in found if "class Subject" in block]
    name = theirs(text)
    assert conform("mine://x", "--engine", f"{name}:Subject", "--only", "fence")[0] == 0

    class Named:
        value = f"{name}:Subject"

    def named(**asked):
        return [Named()] if asked == {"group": "forebay.engines", "name": "mine"} else []

    monkeypatch.setattr("forebay.engines.entry_points", named)
    assert conform("mine://x", "--only", "fence")[0] == 0
