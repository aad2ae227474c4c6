"""Simulated histories per minute on one core, over the Ledger and over real SQL beside it.

    python -m bench.sim [--seconds 20] [--json sim.json]

A history: up to 40 jobs, two tasks, one or two nodes, faults drawn from the seed, every invariant checked
after every step, everything ended. Times are of the process (CPU), so a busy machine does not count.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from forebay.core.ledger import Ledger
from forebay.sim.plan import draw_plan
from forebay.sim.report import summary, table

if __package__ in (None, ""):  # started as a file: the tests it shares are beside bench/
    sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.sim import harness


def measure(name, make_book, seconds):
    histories, seed = [], 5_000_000
    wall, began = time.perf_counter(), time.process_time()
    while time.process_time() - began < seconds:
        histories.append(harness.play(draw_plan(seed), make_book))
        seed += 1
    took_s = time.process_time() - began
    totals = summary(histories)
    return {
        "store": name,
        "histories": totals["histories"],
        "histories_per_min": 60 * totals["histories"] / took_s,
        "events_per_s": totals["events"] / took_s,
        "events_each": totals["events"] / totals["histories"],
        "jobs_each": totals["jobs"] / totals["histories"],
        "checks": totals["checks"],
        "virtual_hours": totals["virtual_hours"],
        "cpu_share": took_s / (time.perf_counter() - wall),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="CPU time for each store")
    parser.add_argument("--json", help="write the figures to this file too")
    given = parser.parse_args()
    rows = [
        measure("ledger", Ledger, given.seconds),
        measure("sql beside the ledger", harness.twin, given.seconds),
    ]
    print(table(rows))
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
