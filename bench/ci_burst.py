"""The burst of a pipeline: 3 runs of 400 jobs at once, 3 replicas of 150/s each, a queue of 200.

    python bench/ci_burst.py                  # all three, half a minute
    python bench/ci_burst.py budget           # one
    python bench/ci_burst.py --json out.json

`budget`: three `forebay submit --rate 300/s --budget ci`. `refusals`: the same three without either, obeying the
server alone. `at-once`: 1,200 single calls on as many connections that take no for an answer. In each the queue is
looked at every 50 ms. Exit code 1 when a bar is missed.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

from harness import Served, connect, machine_lock, post, quantile, show

RUNS, JOBS, BOUND = 3, 400, 200
WARM = 30  # jobs that ran before
APP = "../tests/e2e/apps/burst.py"
LOOK_S = 0.05
PARTS = ("budget", "refusals", "at-once")
Figures = dict[str, Any]


class Watch:
    """Looks at the queue until it is told to stop; `most` is the most that was open at once."""

    def __init__(self, served: Served) -> None:
        self.most = 0
        self._served = served
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            self.most = max(self.most, self._served.get("/v1/queues/Infer")["open"])

    def stop(self) -> int:
        """Return the most that was open."""
        self._over.set()
        self._thread.join()
        return self.most


def jobs_of(served: Served) -> tuple[list[float], int]:
    """Return how long each job waited, from accepted to started, in ms; and how many completed."""
    waits, cursor, done = list[float](), "", 0
    while True:
        page = served.get(f"/v1/jobs?limit=500{cursor}")
        for job in page["items"]:
            done += job["status"] == "COMPLETED"
            if job["started_at"] is not None:
                began, accepted = (datetime.fromisoformat(job[at]) for at in ("started_at", "created_at"))
                waits.append((began - accepted).total_seconds() * 1000)
        if page["next_cursor"] is None:
            return waits, done
        cursor = f"&cursor={page['next_cursor']}"


def refused(served: Served) -> dict[str, int]:
    """Return how many submissions were refused, by reason."""
    with urllib.request.urlopen(f"http://127.0.0.1:{served.port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r'inference_admission_total\{decision="refused",reason="(\w+)",.*?\} (\S+)', text)
    return {reason: int(float(count)) for reason, count in found}


def drained(served: Served) -> None:
    """Return when nothing is open."""
    while served.get("/v1/queues/Infer")["open"]:
        time.sleep(0.05)


def runs_of(served: Served, *pace: str) -> Figures:
    """Let three `forebay submit` run at once; return what became of them."""
    with tempfile.TemporaryDirectory() as name:
        directory, runs = Path(name), []
        for run in range(RUNS):
            rows = directory / f"run{run}.ndjson"
            rows.write_text("".join(f'"{run}-{n}"\n' for n in range(JOBS)))
        watch, began = Watch(served), time.perf_counter()
        for run in range(RUNS):
            argv = [
                sys.executable,
                "-m",
                "forebay",
                "submit",
                "Infer",
                f"@{directory}/run{run}.ndjson",
                *pace,
            ]
            argv += ["--out", f"{directory}/out{run}.ndjson"]
            env = {**os.environ, "FOREBAY_URL": f"http://127.0.0.1:{served.port}"}
            runs.append(subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL))
        codes = [run.wait() for run in runs]
        sent_s = time.perf_counter() - began
        drained(served)
        took_s = time.perf_counter() - began
    waits, done = jobs_of(served)
    return {
        "sent_s": round(sent_s, 2),
        "took_s": round(took_s, 2),
        "failed_runs": sum(code != 0 for code in codes),
        "completed": done - WARM,
        "most_open": watch.stop(),
        "refused": refused(served),
        "wait_p50_ms": round(quantile(waits, 0.5), 1),
        "wait_p95_ms": round(quantile(waits, 0.95), 1),
    }


async def warm(served: Served) -> None:
    """Let some jobs run, so that the server knows what one takes."""
    lines = b"\n".join(json.dumps({"task": "Infer", "payload": number}).encode() for number in range(WARM))
    (caller,) = await connect(served.port, 1)
    await caller.call(post(lines, ndjson=True))
    await asyncio.to_thread(drained, served)


async def at_once(served: Served) -> Figures:
    """Send every job on a connection of its own at the same time; return what was answered."""
    callers = await connect(served.port, RUNS * JOBS)
    watch, times = Watch(served), list[float]()

    async def one(caller: Any, number: int) -> tuple[int, bytes]:
        body = json.dumps({"task": "Infer", "payload": number}).encode()
        began = time.perf_counter()
        answer: tuple[int, bytes] = await caller.call(post(body))
        times.append((time.perf_counter() - began) * 1000)
        return answer

    answers = await asyncio.gather(*(one(caller, number) for number, caller in enumerate(callers)))
    told = [json.loads(body).get("retry_after_s") for status, body in answers if status == 429]
    await asyncio.to_thread(drained, served)
    waits, done = jobs_of(served)
    return {
        "accepted": sum(status == 202 for status, _ in answers),
        "completed": done - WARM,
        "refused": len(told),
        "told_when": sum(isinstance(after, float | int) and after > 0 for after in told),
        "different_times": len(set(told)),
        "answer_p95_ms": round(quantile(times, 0.95), 1),
        "most_open": await asyncio.to_thread(watch.stop),
        "wait_p95_ms": round(quantile(waits, 0.95), 1),
    }


def measure(which: str) -> Figures:
    """Return the figures of one way, on a server of its own that has run a few jobs."""
    served = Served(APP, workers=3, queue_max=BOUND).wait_ready()
    try:
        asyncio.run(warm(served))
        if which == "at-once":
            return asyncio.run(at_once(served))
        return runs_of(served, *(("--rate", "300/s", "--budget", "ci") if which == "budget" else ()))
    finally:
        served.stop()


def rows_of(which: str, found: Figures) -> list[tuple[str, str, str, bool]]:
    """Return (what, measured, bar, met) of one way."""
    rows = [("most open at once", found["most_open"], f"<= {BOUND}", found["most_open"] <= BOUND)]
    if which == "at-once":
        whole = found["completed"] + found["refused"] == RUNS * JOBS
        rows.append(("accepted, refused", f"{found['accepted']}, {found['refused']}", "all answered", whole))
        told = found["told_when"] == found["refused"]
        rows.append(("refused and told when", found["told_when"], "all of them", told))
        rows.append(("answer p95, ms", found["answer_p95_ms"], "", True))
    else:
        done = found["completed"] == RUNS * JOBS and not found["failed_runs"]
        rows.append(("completed", found["completed"], "1,200, no run failed", done))
        rows.append(("sent after, s", found["sent_s"], "", True))
        rows.append(("done after, s", found["took_s"], "", True))
        rows.append(("refused on the way", sum(found["refused"].values()), "", True))
    quick = which != "budget" or found["wait_p95_ms"] < 200
    rows.append(("wait p95, ms", found["wait_p95_ms"], "< 200" if which == "budget" else "", quick))
    return [(f"{which}: {what}", f"{value:,}" if isinstance(value, int | float) else value, bar, met)
            for what, value, bar, met in rows]  # fmt: skip


def main() -> int:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("which", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--json")
    options = parser.parse_args()
    with machine_lock():
        figures = {which: measure(which) for which in options.which or PARTS}
    rows = [row for which, found in figures.items() for row in rows_of(which, found)]
    told = [(what, value, f"{bar}{'' if met else '   MISSED'}") for what, value, bar, met in rows]
    show("The burst of a pipeline", told, figures, options.json)
    return 0 if all(met for *_, met in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
