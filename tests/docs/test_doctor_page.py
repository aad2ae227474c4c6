"""The page on the doctor and on targets: what it shows is printed, and every cause there is stands on it."""

import json
import re
from pathlib import Path

from forebay.cli.edge import run
from forebay.cli.targets import targets_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
RULES = ROOT / "src/forebay/core/doctor"


def test_the_container_of_the_page_is_told_as_the_page_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    host = {"NanoCpus": 2_000_000_000, "Memory": 2 << 30}
    stats = {"Name": "detector", "CPUPerc": "99.87%", "MemUsage": "1.8GiB / 2GiB"}
    Path("detector.json").write_text(
        json.dumps([{"Name": "/detector", "HostConfig": host}]) + json.dumps(stats), encoding="utf-8"
    )
    shown = re.search(
        r"^\$ forebay doctor --inspect detector.json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )[1]
    assert run(["doctor", "--inspect", "detector.json", "--for", "0.01s"]) == 1
    assert shown.strip() in capsys.readouterr().out


def test_every_cause_stands_on_the_page_and_no_other():
    code = "".join(path.read_text(encoding="utf-8") for path in sorted(RULES.glob("*_rules.py")))
    causes = set(re.findall(r'Finding\(\s*"(\w+)"', code))
    table = re.search(r"^\| cause \|.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)[0].strip()
    told = {name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
    assert told == causes and len(causes) > 20


def test_the_targets_of_the_page_are_a_file_of_targets(tmp_path):
    (tmp_path / "targets.toml").write_text(
        re.search(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
    )
    found = targets_of(str(tmp_path / "targets.toml"))
    assert (found.for_s, found.every_s) == (300.0, 1.0)
    assert [one.wanted for one in found.targets] == ["< 250", "<= 0.045", "<= 0", "< 0.2"]
    assert found.payloads == {"a request of ours is answered": {"image": "door.jpg"}}
