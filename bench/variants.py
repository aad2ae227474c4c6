"""Attainment with variants: a large model, two smaller ones behind it, and more load than the large one can take.

    python bench/variants.py [--times 0.9 2 5] [--seconds 15] [--json FILE]

The model of serving.py (20 ms + 2 ms an item, batches of 16, 307.7/s) with variants 2.5 and 8 times as fast and
less often right; 200 ms for an answer, all else at its default. The load is open loop, Poisson, latency counts
from the scheduled instant; 3 s of 30/s come before it and 6 s of half the capacity after it. ATTAINED is a 200
within 200 ms of all that were sent. The ledger says by which level they were answered, and how many of those
answers were right. The same load without variants is beside it. Exit code 1 when the bar is missed.
"""

import argparse
import random
import re
import sys
from collections import Counter
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.harness import Served, machine_lock, quantile, show
from bench.openloop import OpenLoop
from bench.serving import CAPACITY, GIVE_UP_S, SLO_S, arrivals, request

BAR_TIMES, BAR = 2.0, 0.99
NAMES = ("Large", "Medium", "Small")


def attained(shot):
    """Say whether it was answered with an output in time."""
    return shot.status == 200 and shot.latency_s <= SLO_S


def level(shot):
    """Return which variant answered."""
    return int(re.search(rb"\r\nforebay-level: (\d+)", shot.head)[1])


def is_right(shot, number):
    """Say whether the model was right."""
    return int(shot.body) == 2 * number + 1


def play(task, times, seconds, seed=1):
    """Return (number, shot) of the overload and of the calm after it."""
    with machine_lock():
        server = Served("variant_models.py", workers=1, FOREBAY_QUEUE_MAX="100000")
        try:
            server.wait_ready()
            phases = [(30.0, 3.0), (times * CAPACITY, seconds), (0.5 * CAPACITY, 6.0)]
            due, spans = arrivals(phases, random.Random(seed), lambda number: request(number, task))
            shots = OpenLoop(server.port, give_up_s=GIVE_UP_S).run(due)
        finally:
            server.stop()
    numbered = list(enumerate(shots))
    return [[pair for pair in numbered if a <= pair[1].due_s < b] for a, b in spans[1:]]


def ledger(answered):
    """Return by level: the share of the answers, and how many of them were right."""
    counts = Counter(level(shot) for _, shot in answered)
    rights = Counter(level(shot) for number, shot in answered if is_right(shot, number))
    return {
        one: {"share": counts[one] / len(answered), "right": rights[one] / counts[one]}
        for one in sorted(counts)
    }


def measure(times, seconds):
    """Return the rows and figures of one load."""
    over, after = play("Large", times, seconds)
    good = [pair for pair in over if attained(pair[1])]
    without = play("Alone", times, seconds)[0]
    calm = [pair for pair in after[len(after) // 2 :] if attained(pair[1])]
    figures = {
        "attained": len(good) / len(over),
        "without_variants": sum(attained(shot) for _, shot in without) / len(without),
        "p99_ms": 1000 * quantile([shot.latency_s for _, shot in over if shot.status == 200], 0.99),
        "ledger": ledger(good),
        "right": sum(is_right(shot, number) for number, shot in good) / len(good),
        "right_of_sent": sum(is_right(shot, number) for number, shot in good) / len(over),
        "right_of_sent_without": sum(attained(s) and is_right(s, n) for n, s in without) / len(without),
        "large_again": ledger(calm).get(0, {"share": 0.0})["share"],
        "statuses": {str(k): v for k, v in Counter(shot.status for _, shot in over).items()},
    }
    bar = f">= {BAR}" if times == BAR_TIMES else ""
    told = f"{figures['attained']:.4f}  p99 {figures['p99_ms']:.0f} ms"
    rows = [
        (f"{times:g}x: attained", told, bar),
        ("  without variants", f"{figures['without_variants']:.4f}", ""),
    ]
    for number, found in figures["ledger"].items():
        rows.append(
            (
                f"  level {number}, {NAMES[number]}",
                f"{found['share']:.3f} of them, right {found['right']:.3f}",
                "",
            )
        )
    rows += [
        ("  right, of all that were sent", f"{figures['right_of_sent']:.3f}", ""),
        ("  the same without variants", f"{figures['right_of_sent_without']:.3f}", ""),
        ("  by the large model again, 3 s after", f"{figures['large_again']:.3f}", ""),
    ]
    return rows, figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=float, nargs="*", default=[0.9, BAR_TIMES, 5.0])
    parser.add_argument("--seconds", type=float, default=15.0, help="of the overload; shorter runs flatter")
    parser.add_argument("--json", help="write the figures to this file too")
    given = parser.parse_args()
    rows, figures = [], {}
    for times in given.times:
        more, figures[times] = measure(times, given.seconds)
        rows += more
    show("Requests with a deadline of 200 ms and variants, default settings", rows, figures, given.json)
    return int(BAR_TIMES in figures and figures[BAR_TIMES]["attained"] < BAR)


if __name__ == "__main__":
    sys.exit(main())
