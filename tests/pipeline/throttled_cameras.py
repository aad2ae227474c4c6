"""15 cameras before a model that burns CPU, in the group that the first argument names; says what was done."""

import sys
import time
from pathlib import Path

if len(sys.argv) > 1:
    Path(sys.argv[1]).write_text("0")

import forebay
from forebay.pipeline.exposition import Exposition
from forebay.pipeline.live import Rates, lines_of
from forebay.streams.ports import Captured

FRAMES, BURN_S = 40, 0.004  # of the processor, for one frame


def burn(value):
    ends_at = time.process_time() + BURN_S
    while time.process_time() < ends_at:
        pass
    return len(value)


def camera(name):
    for _ in range(FRAMES):
        time.sleep(1 / 30)
        yield Captured(b"pixels", name, time.time())


if __name__ == "__main__":
    stage = forebay.Stage(burn, queue=forebay.Queue(16, on_full="drop_oldest"))
    running = forebay.Pipeline(stage).start(*(camera(f"cam-{number}") for number in range(15)))
    running.wait()
    report = running.report()
    lines = [Rates().line(report), *lines_of(report), Exposition(lambda: report).render().decode()]
    sys.stdout.write("\n".join(lines))
    lost = sum(one.sent - one.served - sum(one.dropped.values()) - one.in_flight for one in report.streams)
    sys.stdout.write(f"\nsent {report.sent} unaccounted {lost}\n")
