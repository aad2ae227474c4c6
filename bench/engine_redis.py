"""Durable jobs on Redis: a backlog drained by `forebay serve` and idle latency, by what the server syncs.

    python -m bench.engine_redis [--jobs 3000] [--rounds 3] [--json FILE]

One server of its own for each setting (`appendfsync always`, `everysec`). 1 KB in, 1 KB out, the result stored.
"""

import argparse
import json
import os
import statistics
from pathlib import Path

from bench.engine_postgres import IDLE_JOBS, drained, idle
from bench.harness import Served, machine_lock

from tests.brokers.redis.server import RedisServer

SYNCS = ("always", "everysec")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    figures: dict[str, float] = {}
    with machine_lock():
        figures["load_of_the_machine"] = os.getloadavg()[0]
        for sync in SYNCS:
            figures.update(measured(sync, args.jobs, args.rounds))
    for name, value in figures.items():
        print(f"{name:<40} {value:>12,.1f}")
    print(json.dumps(figures))
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")


def measured(sync: str, jobs: int, rounds: int) -> dict[str, float]:
    server = RedisServer()
    try:
        server.start(appendfsync=sync)
        served = Served("noop.py", FOREBAY_BROKER=server.url()).wait_ready()
        try:
            waits = sorted(idle(served) for _ in range(IDLE_JOBS))
            rates = [drained(served, jobs) for _ in range(rounds)]
        finally:
            served.stop()
    finally:
        server.stop()
    return {
        f"{sync}_drained_per_s": statistics.median(rates),
        f"{sync}_idle_p50_ms": waits[len(waits) // 2] * 1000,
        f"{sync}_idle_p99_ms": waits[len(waits) * 99 // 100] * 1000,
    }


if __name__ == "__main__":
    main()
