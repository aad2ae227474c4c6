"""`forebay simulate`: the incidents that ship, scenarios of one's own, pictures, and what is refused."""

import csv
import json
import re
import struct
import tomllib
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path

import pytest

from forebay.cli.edge import run
from forebay.cli.scenarios import read_scenario
from forebay.sim.scenario import DROPPED, GOOD, LATE, REFUSED, Ended, play, seconds

SHIPPED = ["cameras", "ci-burst", "docker-stream", "levelling"]
MINE = """
for = "10s"
deadline = "200ms"
[model]
fixed = "20ms"
each = "2ms"
batch_max = 16
[[arrivals]]
rate = "600/s"
[[policy]]
name = "plain"
kind = "plain"
[[policy]]
name = "ours"
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(MINE)
    return tmp_path


def rows(capsys, *argv):
    assert run(["simulate", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["policies"]


def test_those_that_ship_are_listed_with_their_titles(capsys):
    assert run(["simulate", "--list", "--json"]) == 0
    assert [one["scenario"] for one in json.loads(capsys.readouterr().out)] == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_an_incident_is_worse_before_than_after_and_nobody_is_lost_in_the_count(name, capsys):
    before, *_, after = rows(capsys, name)
    assert before["policy"].startswith("before") and after["good_share"] > before["good_share"]
    assert after["late"] == 0, "what would be late does not run"
    for row in (before, after):
        assert row["came"] == sum(row[how] for how in (GOOD, LATE, REFUSED, DROPPED)) > 0


def test_m40_the_cameras_lose_four_in_ten_with_a_bounded_queue_and_none_in_batches(capsys):
    _, bounded, after = rows(capsys, "cameras")
    assert 0.35 < bounded["dropped"] / bounded["came"] < 0.45
    assert after["good_share"] == 1.0 and after["p99_s"] < 0.3


def test_people_are_served_beside_the_burst_of_a_pipeline(capsys):
    before, _, after = rows(capsys, "ci-burst")
    assert before["good_of"]["people"] < 0.5 and after["good_of"]["people"] >= 0.99


def test_a_scenario_of_ones_own_agrees_with_the_capacity_of_its_model(capsys):
    plain, ours = rows(capsys, "mine.toml")
    assert plain["good_share"] < 0.1, "everybody waits"
    capacity = 16 / (0.020 + 16 * 0.002)
    assert 0.95 * capacity < ours["good_per_s"] < 1.03 * capacity


def test_the_same_seed_is_the_same_story(here, capsys):
    assert rows(capsys, "mine.toml") == rows(capsys, "mine.toml")
    (here / "other.toml").write_text("seed = 7" + MINE)
    assert rows(capsys, "other.toml") != rows(capsys, "mine.toml")


def test_text_has_a_line_for_each_policy(capsys):
    assert run(["simulate", "mine.toml"]) == 0
    title, head, plain, ours = capsys.readouterr().out.splitlines()
    assert "in time is within 200 ms" in title and "IN TIME" in head
    assert plain.startswith("plain") and ours.startswith("ours")


def test_csv_has_each_second_of_each_policy(here, capsys):
    assert run(["simulate", "mine.toml", "--csv", "out.csv"]) == 0
    found = list(csv.DictReader((here / "out.csv").read_text().splitlines()))
    ours = [one for one in found if one["policy"] == "ours"]
    assert [int(one["second"]) for one in ours] == list(range(len(ours))) and len(ours) >= 10
    assert sum(int(one["came"]) for one in ours) == sum(int(one["came"]) for one in found) / 2


def test_a_picture_is_an_svg_or_a_png_with_three_lines_for_each_policy(here, capsys):
    assert run(["simulate", "mine.toml", "--plot", "a.svg"]) == 0
    tree = ElementTree.fromstring((here / "a.svg").read_text())
    assert len([one for one in tree if one.tag.endswith("polyline")]) == 6
    assert run(["simulate", "mine.toml", "--plot", "a.png"]) == 0
    raw = (here / "a.png").read_bytes()
    assert raw.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", raw[16:24])
    at, size = raw.index(b"IDAT"), struct.unpack(">I", raw[raw.index(b"IDAT") - 4 : raw.index(b"IDAT")])[0]
    pixels = zlib.decompress(raw[at + 4 : at + 4 + size])
    assert len(pixels) == height * (1 + 3 * width) and b"\x2b\x7f\xd4" in pixels


def test_a_title_cannot_break_out_of_the_picture(here):
    (here / "x.toml").write_text('title = "<script>&"' + MINE)
    assert run(["simulate", "x.toml", "--plot", "a.svg"]) == 0
    assert "<script>" not in (here / "a.svg").read_text()


WRONG = [
    ("", "at least one"), ("x = 1" + MINE, "unknown field 'x'"), (MINE.replace('"600/s"', '"fast"'), "rate = 'fast'"),
    (MINE.replace('rate = "600/s"', 'even = true'), "rate or burst"), (MINE.replace('kind = "plain"', 'kind = "x"'), "plain or forebay"),
    (MINE.replace("batch_max = 16", "batch_max = 0"), "batch_max = 0"), (MINE.replace('"10s"', '"0s"'), "more than 0"),
    (MINE.replace('"600/s"', '"900000/s"'), "more than 200,000"), (MINE + 'discipline = "lifo"', "discipline"),
    ("arrivals = 3", "must be tables"), ("a = [", "mine.toml"), (MINE.replace('rate = "600/s"', 'burst = 1\npriority = "top"'), "priority"),
    (MINE + '[[policy]]\nname = "x"\n' * 13, "more than 12"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told"), WRONG)
def test_what_is_wrong_in_a_scenario_is_one_line_and_exit_code_2(here, capsys, text, told):
    (here / "mine.toml").write_text(text)
    assert run(["simulate", "mine.toml"]) == 2
    err = capsys.readouterr().err
    assert told in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "told"),
    [([], "SCENARIO"), (["nothing"], "no such scenario"), (["cameras", "--plot", "a.gif"], ".svg or .png"), (["../x"], "no such")],
)  # fmt: skip
def test_a_wrong_command_line_is_exit_code_2(capsys, argv, told):
    assert run(["simulate", *argv]) == 2
    assert told in capsys.readouterr().err


def test_what_is_shown_can_be_played(here, capsys):
    assert run(["simulate", "levelling", "--show"]) == 0
    text = capsys.readouterr().out
    assert tomllib.loads(text)["title"] and read_scenario(text, "x").policies


def test_the_example_of_the_page_can_be_played():
    page = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text()
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    scenario = read_scenario(text, "page")
    assert all(play(scenario, policy) for policy in scenario.policies)


def test_seconds_count_who_is_inside():
    story = seconds(
        [Ended("a", 0.5, 2.5, GOOD), Ended("a", 0.6, 0.7, REFUSED), Ended("a", 1.0, 9.0, LATE)], 3.0
    )
    assert [one.came for one in story][:3] == [2, 1, 0] and [one.good for one in story][:4] == [0, 0, 1, 0]
    assert [one.inside for one in story] == [1, 2, 1, 1, 1, 1, 1, 1, 1, 0]
