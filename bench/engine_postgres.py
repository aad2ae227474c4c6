"""Durable jobs on PostgreSQL: a backlog drained by `forebay serve`, idle latency, and procrastinate beside it.

    python -m bench.engine_postgres [--jobs 3000] [--rounds 3] [--peer PYTHON] [--json FILE]

One server of its own (full fsync) for all; rounds alternate. 1 KB in, 1 KB out, the result stored. PYTHON is an
interpreter with procrastinate; without one its rows are left out.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from bench.harness import PAYLOAD, Served, machine_lock

from tests.brokers.postgres.server import PostgresServer

PEER = Path(__file__).parent / "peers" / "procrastinate_peer.py"
BAR_TIMES = 3.0  # procrastinate
IDLE_JOBS = 200
DRAIN_MAX_S = 300.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", default=None)
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    with machine_lock():
        server = PostgresServer().make().start()
        try:
            figures = measured(server, args.jobs, args.rounds, args.peer)
        finally:
            server.stop()
    for name, value in figures.items():
        print(f"{name:<40} {value:>12,.1f}")
    print(json.dumps(figures))
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")


def measured(server: Any, jobs: int, rounds: int, peer: str | None) -> dict[str, float]:
    ours: list[float] = []
    theirs: list[float] = []
    served = Served("noop.py", FOREBAY_BROKER=server.url()).wait_ready()
    try:
        waits = sorted(idle(served) for _ in range(IDLE_JOBS))
        for number in range(rounds):
            ours.append(drained(served, jobs))
            if peer is not None:
                server.sql(f"CREATE DATABASE peer_{number}")
                url = f"postgresql://postgres@127.0.0.1:{server.port}/peer_{number}"
                done = subprocess.run(
                    [peer, str(PEER), url, str(jobs), "32"],
                    capture_output=True,
                    text=True,
                    check=True,
                    timeout=DRAIN_MAX_S,
                )
                theirs.append(jobs / float(done.stdout.split()[-1]))
    finally:
        served.stop()
    figures = {
        "load_of_the_machine": os.getloadavg()[0],
        "forebay_drained_per_s": statistics.median(ours),
        "forebay_idle_p50_ms": waits[len(waits) // 2] * 1000,
        "forebay_idle_p99_ms": waits[len(waits) * 99 // 100] * 1000,
    }
    if theirs:
        figures["procrastinate_drained_per_s"] = statistics.median(theirs)
        figures["times_procrastinate"] = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        figures["bar_times"] = BAR_TIMES
    return figures


def ask(served: Any, path: str, body: bytes = b"", kind: str = "application/json", **headers: str) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{served.port}{path}", body, {"Content-Type": kind, **headers}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=DRAIN_MAX_S) as answer:
        return answer.read()


def idle(served: Any) -> float:
    """Return the seconds from the submission of one job to its result."""
    body = json.dumps({"task": "echo", "payload": PAYLOAD}).encode()
    began = time.perf_counter()
    record = json.loads(ask(served, "/v1/jobs", body, Prefer="wait=20"))
    assert record["status"] == "COMPLETED", record
    return time.perf_counter() - began


def drained(served: Any, jobs: int) -> float:
    """Return the jobs a second at which a backlog goes."""
    ask(served, "/v1/queues/echo/pause")
    line = json.dumps({"task": "echo", "payload": PAYLOAD}).encode() + b"\n"
    ask(served, "/v1/jobs", line * jobs, "application/x-ndjson")
    began = time.perf_counter()
    ask(served, "/v1/queues/echo/resume")
    while served.queue()["open"]:
        assert time.perf_counter() - began < DRAIN_MAX_S
        time.sleep(0.02)
    return jobs / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
