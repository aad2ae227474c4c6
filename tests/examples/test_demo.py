"""The demo, run as anybody would: real networks, a real server, real refusals, real deaths."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.waiting import until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PACKAGES = ("rapidocr", "onnxruntime", "numpy", "PIL")
IN_MODELS_LANE = os.environ.get("TEST_LANE") == "models"  # there, something missing is a failure
PAGES = 17
RUN_MAX_S = 600  # some 30 s where two cores are free
START_MAX_S = 120

missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
if missing and not IN_MODELS_LANE:
    pytest.skip(
        f"not installed: {', '.join(missing)}; pip install -r examples/requirements.txt",
        allow_module_level=True,
    )

pytestmark = [
    pytest.mark.models,
    pytest.mark.slow,
    pytest.mark.timeout(RUN_MAX_S + 60),
    pytest.mark.xdist_group("demo"),  # one run for all of them, and never two at once
]


def command(*arguments):
    return [sys.executable, str(EXAMPLES / "demo.py"), *map(str, arguments)]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One run: its end, its text, its figures, and what it left in the directory for temporary files."""
    place = tmp_path_factory.mktemp("demo")
    temporary = place / "tmp"
    temporary.mkdir()
    done = subprocess.run(
        command("--pages", PAGES, "--json", place / "figures.json"),
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=RUN_MAX_S,
    )
    assert (place / "figures.json").exists(), done.stdout + done.stderr
    return done, json.loads((place / "figures.json").read_text()), list(temporary.glob("forebay-demo-*"))


def test_everything_the_demo_promises_holds(ran):
    done, figures, _ = ran
    broken = [check["name"] for check in figures["checks"] if not check["good"]]
    assert not broken and len(figures["checks"]) == 10, done.stdout
    assert done.returncode == 0 and "everything promised held" in done.stdout
    assert not done.stderr


def test_no_job_of_the_demo_is_lost_although_a_worker_is_killed_with_a_batch_in_its_hands(ran):
    _, figures, _ = ran
    assert figures["lost"] == 0
    assert figures["submitted"] == figures["accepted"] == figures["final"] == PAGES + 2
    assert figures["kill"]["hit"] == figures["kill"]["hit_and_ended"] == figures["kill"]["batch"] >= 2
    assert set(figures["kill"]["attempts"]) == {1}
    assert figures["restarts"]["count"] >= 3  # the kill, and the poison at least twice


def test_the_burst_of_the_demo_meets_refusals_that_say_when_to_come_back(ran):
    _, figures, _ = ran
    refusals = figures["refusals"]
    assert 0 < refusals["refused"] <= refusals["by_server"]
    assert 0 < refusals["retry_after_s"][0] <= refusals["retry_after_s"][1] < 600


def test_the_bad_pages_of_the_demo_end_alone(ran):
    _, figures, _ = ran
    dead = {row["kind"]: row for row in figures["dead_letters"]}
    assert set(dead) == {"bomb", "poison"}
    assert dead["bomb"]["attempt"] == 1 and "refused before decoding" in dead["bomb"]["message"]
    assert dead["poison"]["attempt"] == 2 and "SIGSEGV" in dead["poison"]["message"]
    assert figures["poison_neighbours"]
    assert all(row["attempt"] == 1 for row in figures["poison_neighbours"])


def test_the_demo_scores_every_page_and_holds_etas_against_the_truth(ran):
    _, figures, _ = ran
    assert figures["text"]["line_share"] >= 0.97 and len(figures["text"]["by_page"]) == PAGES
    assert figures["eta"]["count"] > 0
    assert all(row["true_s"] > 0 and row["p90_s"] >= row["p50_s"] for row in figures["eta"]["rows"])


def test_the_demo_stops_its_server_and_leaves_nothing(ran):
    _, figures, left = ran
    assert figures["stop"]["exit_code"] == 0 and figures["stop"]["clean"]
    assert not left


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process_and_no_directory(number, tmp_path):
    demo = subprocess.Popen(
        command("--pages", PAGES),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        family = until(lambda: _family(demo, at_least=3), START_MAX_S, "the server and its two workers")
        demo.send_signal(number)
        said, _ = demo.communicate(timeout=START_MAX_S)
    finally:
        demo.kill()
    assert demo.returncode == 130 and "interrupted" in said and "Traceback" not in said
    assert not psutil.wait_procs(family, timeout=30)[1]
    assert not list(tmp_path.glob("forebay-demo-*"))


def _family(demo, at_least):
    assert demo.poll() is None, demo.communicate()[0]
    family = psutil.Process(demo.pid).children(recursive=True)
    return family if len(family) >= at_least else None


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(("--pages", "3"), "--pages"), (("--json", "/nowhere/x.json"), "--json: no such directory")],
    ids=["too few pages for an overload", "nowhere to write"],
)
def test_a_wrong_argument_is_refused_before_anything_starts(arguments, reason):
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and reason in done.stderr and "Traceback" not in done.stderr
