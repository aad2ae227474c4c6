"""The burst of a pipeline: 3 runs of 400 jobs at once, 3 replicas of 150/s, a queue of 200."""

import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import forebay
from tests.e2e.harness import Served
from tests.waiting import until

BOUND, RUNS, JOBS = 200, 3, 400
BURST_ENV = {"FOREBAY_QUEUE_MAX": str(BOUND)}


def command(served, *argv):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    return subprocess.Popen(
        [sys.executable, "-m", "forebay", *argv],
        env=clean | {"FOREBAY_URL": f"http://127.0.0.1:{served.port}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Watch:
    """Looks at the queue all the time; `most` is the most that was open at once."""

    def __init__(self, served):
        self.most, self._served, self._over = 0, served, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self):
        while not self._over.wait(0.02):
            self.most = max(self.most, self._served.get("/v1/queues/Infer").json["open"])

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._over.set()
        self._thread.join(20)


def known(told):
    return told if told.eta is not None else None


def refusals(served):
    text = served.get("/metrics").body.decode()
    found = re.findall(
        r'inference_admission_total\{decision="refused",reason="(\w+)",task="Infer"\} (\S+)', text
    )
    return {reason: float(count) for reason, count in found}


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("paced", [True, False], ids=["budget", "refusals alone"])
def test_three_runs_of_400_all_finish_and_the_queue_keeps_its_bound(tmp_path, paced):
    with Served(tmp_path, "burst.py", workers=3, env=BURST_ENV) as served, Watch(served) as watch:
        runs = []
        for run in range(RUNS):
            rows = tmp_path / f"run{run}.ndjson"
            rows.write_text("".join(f'"{run}-{n}"\n' for n in range(JOBS)), encoding="utf-8")
            pace = ["--rate", "300/s", "--budget", "ci"] if paced else []
            out = str(tmp_path / f"out{run}.ndjson")
            runs.append(command(served, "submit", "Infer", f"@{rows}", *pace, "--wait", "--out", out))
        for run in runs:
            out, err = run.communicate(timeout=150)
            assert (run.returncode, err) == (0, ""), (out, err)
        for run in range(RUNS):
            ended = [json.loads(row) for row in (tmp_path / f"out{run}.ndjson").read_text().splitlines()]
            assert {row["status"] for row in ended} == {"COMPLETED"}
            assert sorted(row["result"] for row in ended) == sorted(f"{run}-{n}" for n in range(JOBS))
        assert 0 < watch.most <= BOUND
        refused = refusals(served)
        if paced:
            (budget,) = served.get("/v1/budgets").json["items"]
            assert (budget["name"], budget["granted"]) == ("ci", RUNS * JOBS)
            assert refused.get("over_budget", 0) == budget["refused"]
        else:
            assert refused["full"] > 0


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_of_a_burst_of_single_calls_every_refused_one_is_told_when_to_come_back(tmp_path):
    slow = BURST_ENV | {"BURST_PER_S": "20"}  # so that a busy machine fills the queue too
    with Served(tmp_path, "burst.py", workers=3, env=slow) as served, Watch(served) as watch:

        def one(n):
            return served.ask("POST", "/v1/jobs", {"task": "Infer", "payload": n}, timeout=60.0)

        with ThreadPoolExecutor(64) as pool:
            answers = list(pool.map(one, range(1200)))
        assert {answer.status for answer in answers} == {202, 429}
        assert 0 < watch.most <= BOUND
        for refused in [answer for answer in answers if answer.status == 429]:
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.json["retry_after_s"] > 0 and refused.json["code"] == "queue_full"
        told = {refused.json["retry_after_s"] for refused in answers if refused.status == 429}
        assert len(told) > 10, "and not all the same"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_pipeline_announces_waits_for_headroom_and_is_told(tmp_path):
    with Served(tmp_path, "burst.py", workers=1, env=BURST_ENV) as served:
        served.submit("Infer", 0, wait=10)
        url = f"http://127.0.0.1:{served.port}"
        with forebay.Client(url, budget="ci=50/s") as client:
            told = until(lambda: known(client.announce("Infer", 1200)), 20, "what a job takes is measured")
            assert (told.fits, told.room, told.reserved) == (False, BOUND, 0)
            assert 0 < told.rate_per_s <= 50.0, "the budget's, or what the replica does where that is less"
            assert told.eta.p50_s >= told.takes_s == pytest.approx(1200 / told.rate_per_s, rel=0.01)
            assert client.wait_headroom("Infer", BOUND, timeout=20)
        only = command(served, "submit", "Infer", "--announce", "1200", "--json")
        out, err = only.communicate(timeout=60)
        assert (only.returncode, err, json.loads(out)["fits"]) == (0, "", False)
        sent = command(served, "submit", "Infer", "[1]", "--announce", "100", "--wait")
        out, err = sent.communicate(timeout=60)
        assert (sent.returncode, out) == (0, "[1]\n") and "100 jobs fit at once (200 places are free)" in err

        client = forebay.Client(url)
        client.pause("Infer")
        client.submit_many("Infer", range(150))
        late = command(served, "wait", "Infer", "--headroom", "100", "--timeout", "300ms")
        out, err = late.communicate(timeout=60)
        assert (late.returncode, out) == (1, "") and "no room for 100" in err
        waits = command(served, "wait", "--headroom", "100", "--timeout", "60s", "--json")
        client.resume("Infer")
        out, err = waits.communicate(timeout=90)
        assert (waits.returncode, json.loads(out)["has_room"]) == (0, True), err
        too_many = command(served, "wait", "--headroom", "201")
        out, err = too_many.communicate(timeout=60)
        assert too_many.returncode == 1 and "at most 200" in err
        client.close()
    away = command(served, "wait", "Infer", "--headroom", "1")
    away.communicate(timeout=60)
    assert away.returncode == 3
