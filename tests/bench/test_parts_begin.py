"""Every part of every bench begins: with the smallest sizes it takes, it ends as it should and names its rows.

A bench that is not run for weeks is broken by a change elsewhere, and nobody notices until its figures are needed.
Left out here, each with its reason in `LEFT_OUT`:

- what needs something installed: other queues and servers of models (`peers`, `serving_peers`), servers of engines
  (`delivery_nats`; `bench.engines`, a package), and `wrk` (`jobs single`, `serving echo`, `turns single`);
- what takes more than about ten seconds however small it is: `frames rate` waits a second for each of its queues;
  `cameras flood` settles for twelve seconds; `serving changes` changes its model at fixed times over half a minute;
  `variants` plays fifteen seconds around its load, twice; `jobs latency`, `rest`, `recovery` and `backlog` and
  `ci_burst budget` and `refusals` have sizes of their own.

Where the code at the end tells that a bar was missed, 1 is as good as 0 here: sizes are too small to say, and the
machine may be busy.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
WAIT_MAX_S = 55.0
BARS = {"counting", "eta", "ci_burst"}  # whose code tells whether a bar was missed

# (bench, part or none, its options, what its rows must name)
BEGUN = [
    ("blobs", "", "--size-mb 5 --rounds 1", ("put_mb_s", "get_mb_s")),
    ("cameras", "crowd", "--secs 0.6", ("a pipeline: lost",)),
    ("cameras", "spike", "--secs 0.6", ("memory grew by",)),
    ("cameras", "outage", "--secs 0.6", ("answered by the fallback",)),
    ("cameras", "kills", "--kills 1", ("unaccounted",)),
    ("cameras", "policy", "--secs 0.6", ("15 streams, two steps",)),
    ("ci_burst", "at-once", "", ("at-once: accepted, refused", "at-once: wait p95")),
    ("counting", "", "", ("an arrival, 1000 a second", "a look at the peaks")),
    ("engine_sqlite", "", "--seconds 0.1 --rounds 1 --waiting 1000", ("full_empty_jobs_per_s", "recovery_s_with")),
    ("eta", "", "--seeds 1 --jobs 60 --only poisson,", ("poisson, light", "s of processor")),
    ("events", "", "--readers 1 --seconds 0.3", ("events_per_s",)),
    ("fairness", "", "", ("beside equal jobs: p99 s", "10000 tenants")),
    ("frames", "steady", "--steady-s 0.3", ("2,000/s of 640x480x3", "a bare pipe")),
    ("frames", "burst", "--burst-s 0.3", ("drop_oldest", "memory grown")),
    ("frames", "cost", "", ("a decision: us", "put, get, release: us")),
    ("frames", "kills", "--kills 2", ("2 kills: stuck", "frames lost with their process")),
    ("jobs", "ndjson", "--repeat 1", ("jobs/s by NDJSON",)),
    ("jobs", "inprocess", "--repeat 1", ("jobs/s in process",)),
    ("keys", "", "--rounds 2000", ("a key, POST /v1/jobs", "a quota with every limit")),
    ("listing", "", "--jobs 1000 --pages 2", ("deep pages", "by rare metadata")),
    ("purge", "", "--jobs 1000 --gone 1000", ("dead letters kept", "a turn that finds nothing")),
    ("serving", "levels", "--times 1 --seconds 0.5", ("1.0x: goodput / capacity",)),
    ("serving", "burst", "", ("GOOD within 200 ms of the first instant", "refused without Retry-After")),
    ("serving", "stop", "", ("sent before it and failed",)),
    ("sim", "", "--seconds 0.3", ("sql beside the ledger",)),
    ("turns", "ndjson", f"{ROOT} --turns 1 --count 500", ("ndjson_server", "ndjson_rate")),
    ("webhooks", "", "--count 500 --repeat 1", ("deliveries/s to one receiver",)),
]  # fmt: skip

LEFT_OUT = {
    ("cameras", "flood"): "settles for twelve seconds",
    ("ci_burst", "budget"): "three runs of 400 jobs",
    ("ci_burst", "refusals"): "three runs of 400 jobs",
    ("delivery_nats", ""): "needs a server of NATS",
    ("frames", "rate"): "waits a second for each of fifteen queues",
    ("jobs", "single"): "needs wrk",
    ("jobs", "latency"): "twenty thousand calls at fixed rates",
    ("jobs", "rest"): "looks at a server at rest for long",
    ("jobs", "recovery"): "jobs of a second, killed six times",
    ("jobs", "backlog"): "its rates have sizes of their own",
    ("peers", ""): "needs other queues",
    ("serving", "changes"): "its model changes at fixed times",
    ("serving", "echo"): "needs wrk",
    ("serving_peers", "levels"): "needs other servers of models",
    ("serving_peers", "burst"): "needs other servers of models",
    ("serving_peers", "slower"): "needs other servers of models",
    ("turns", "single"): "needs wrk",
    ("variants", ""): "fifteen seconds around its load, twice",
}


def benches():
    """Return (bench, part or none) of all that can be started, by what stands in the files."""
    found = set()
    for path in sorted(BENCH.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if (
            "__main__" not in text
            or not re.search(r"^def main\(", text, re.MULTILINE)
            or path.stem == "burst"
        ):
            continue  # an application, what benches share, or what `serving burst` starts as its own process
        parts = re.search(r"^PARTS = (\(.*?\))$", text, re.MULTILINE)
        found |= {(path.stem, part) for part in (ast.literal_eval(parts[1]) if parts else ("",))}
    return found


def test_every_part_of_every_bench_is_begun_here_or_left_out_for_a_reason():
    begun = {(bench, part) for bench, part, _, _ in BEGUN}
    assert begun.isdisjoint(LEFT_OUT) and benches() == begun | set(LEFT_OUT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bench", "part", "options", "rows"), BEGUN, ids=[" ".join(one[:2]).strip() for one in BEGUN]
)
def test_a_part_begins_ends_and_names_its_rows(bench, part, options, rows, tmp_path):
    args = options.split()
    # The base of `turns` comes before its part.
    command = [*args[:1], part, *args[1:]] if bench == "turns" else [*filter(None, [part]), *args]
    done = subprocess.run(
        [sys.executable, str(BENCH / f"{bench}.py"), *command],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
            "BENCH_LOCK": str(tmp_path / "lock"),
            "TMPDIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=WAIT_MAX_S,
    )
    told = f"{done.stdout}\n{done.stderr}"
    assert done.returncode in ({0, 1} if bench in BARS else {0}), told
    assert "Traceback" not in told
    assert not [row for row in rows if row not in done.stdout], told
