"""What the memory of arrivals and runs costs: counting one arrival at several rates, one run, one look.

    python bench/counting.py [--json counting.json]

Times are of the process (CPU), so a busy machine counts for little; exit code 1 when an arrival above
100 a second costs a microsecond or more. (Each step of 100 ms is closed by the first arrival after it.)
"""

import argparse
import json
import sys
import time

from forebay.core.arrivals import ArrivalWindows
from forebay.core.estimator.run_times import RunTimes
from forebay.sim.report import table

ROUNDS = 5
BAR_US = 1.0


def cheapest(times, work):
    """Return the fewest CPU microseconds of one of `times` steps, over some rounds."""
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        found.append((time.process_time() - began) / times * 1e6)
    return min(found)


def arrivals(per_s, times):
    """Return a run of so many arrivals at a rate."""
    instants = [1_000.0 + number / per_s for number in range(times)]

    def work():
        windows = ArrivalWindows()
        for at in instants:
            windows.arrived(1, now=at)

    return work


def runs(times):
    """Return the counting of so many runs of many lengths."""
    took = [0.005 + number * 1e-6 for number in range(times)]

    def work():
        counted = RunTimes()
        for took_s in took:
            counted.add(took_s)

    return work


def look():
    """Return one look at an hour of arrivals."""
    windows = ArrivalWindows()
    for number in range(360_000):
        windows.arrived(1 + number % 7, now=1_000.0 + number / 100)
    return lambda: windows.peaks(now=4_601.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write the figures to this file too")
    given = parser.parse_args()
    rows = [
        {"what": f"an arrival, {per_s:g} a second", "cpu_us": cheapest(times, arrivals(per_s, times))}
        for per_s, times in ((10_000, 200_000), (1_000, 200_000), (100, 100_000), (10, 20_000), (0.1, 2_000))
    ]
    rows += [
        {"what": "a run", "cpu_us": cheapest(100_000, runs(100_000))},
        {"what": "a look at the peaks of an hour", "cpu_us": cheapest(1, look())},
    ]
    print(table([{"what": row["what"], "cpu_us": f"{row['cpu_us']:.2f}"} for row in rows]))
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 1 if max(row["cpu_us"] for row in rows[:3]) >= BAR_US else 0


if __name__ == "__main__":
    sys.exit(main())
