"""How long a quiet tenant waits beside a noisy one, in virtual time on real SQL, and what fair turns cost.

    python bench/fairness.py [--json FILE]

The quiet tenant sends bursts of 20 and of 100 jobs of 0.1 s to four replicas, 20 % of what they can do; the
noisy one has a hundred jobs for each of its own waiting from the start. Costs are CPU time of this process.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from forebay.brokers.sqlite import SqlBook
from forebay.core import settle
from forebay.core.job import Job
from tests.sim.crowd import p99, waits

NOW = 1_800_000_000.0
LEASED = 20_000  # jobs of one measurement of costs


def main(argv: Sequence[str] | None = None) -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args(argv)
    figures: dict[str, Any] = {}
    for burst in (20, 100):
        for name, beside in {
            "alone": {"noisy": False},
            "beside equal jobs": {"noisy": True},
            "beside jobs 10 times as long": {"noisy": True, "noisy_s": 1.0},
            "beside those, 2 running at most": {"noisy": True, "noisy_s": 1.0, "noisy_max": 2},
        }.items():
            found = waits(SqlBook.in_memory(), burst=burst, bursts=600 // burst, **beside)
            figures[f"bursts of {burst} {name}: p50 s"] = found[len(found) // 2]
            figures[f"bursts of {burst} {name}: p99 s"] = p99(found)
    for tenants in (1, 2, 10, 100, 1_000, 10_000):
        figures[f"{tenants} tenants: lease and settle, us a job"] = cost(tenants)
    for name, value in figures.items():
        print(f"{name:<64} {value:>8.2f}")
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")


def cost(tenants: int, at_once: int = 100) -> float:
    """Return CPU microseconds of leasing and settling one job when so many tenants wait."""
    book = SqlBook.in_memory()
    jobs = [Job(book.new_id(NOW), "t", b"{}", NOW, NOW, tenant=f"t{n % tenants}") for n in range(2 * LEASED)]
    book.enqueue(jobs, now=NOW)
    began = time.process_time()
    for step in range(LEASED // at_once):
        now = NOW + step * 0.01
        leases = book.lease("t", limit=at_once, lease_s=30.0, worker="w", now=now)
        book.commit([settle.complete(lease, output=b"1", now=now) for lease in leases], now=now)
    return (time.process_time() - began) / LEASED * 1e6


if __name__ == "__main__":
    main()
