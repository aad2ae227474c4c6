"""Forebay beside other job queues, measured in one run on one machine.

    python bench/peers.py                             # everything, about ten minutes
    python bench/peers.py --secs 3 --rounds 1         # one round, about four
    python bench/peers.py --only forebay-1 saq        # some rows
    python bench/peers.py --json out.json

No-op jobs, 1 KB of JSON in, 1 KB out, results kept. Each row goes through the same things:

in/s       one producer, one call after another, no worker running; Forebay: NDJSON over four connections.
drained/s  that backlog (at most 60,000 jobs), by two worker processes (forebay-1: by one): results that can
           be looked up, over the time from the first job's start to the last result, cut after --secs.
p50, p99   ms at 500 jobs a second, open loop: from the submit call until a look-up by id, every 1 ms (after
           10 ms: every tenth of the wait so far), finds the result. One job in ten is looked up.
through/s  Forebay alone, the bars of bench/jobs.py: first submit until the last result is stored, workers
           running meanwhile; by NDJSON, and by single calls with 64 in flight.

Rounds go over all rows in turn, and the median is shown. What a row promises stands beside it: rates of
different promises are not the same thing done faster. The peers get environments under bench/.peers, and
a private redis (appendonly, appendfsync everysec) each time; nothing of them outlives the run.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import uvloop
from engine_sqlite import fdatasync_ms
from harness import BENCH, PAYLOAD, Served, connect, machine_lock, quantile
from jobs import ndjson, pause, single
from peering import PEERS, Driver, Figures, Peer, free_port, prepare, server

BACKLOG_MAX = 60_000  # jobs
LINES = 500  # jobs in one NDJSON request
RATE = 500  # jobs a second, of the latencies
LATENCY_JOBS = 5000
LOOKED_UP = 10  # one job in so many
BEHIND_MAX = 25  # tasks that have not ended when the last job goes in: 50 ms of the rate

HUEY = ("huey_consumer", "huey_peer.huey", "-k", "process", "-w", "2", "-q")
HUEY += ("-d", "0.005", "-b", "1", "-m", "0.005")  # looks for work every 5 ms; its default is 100 ms and more
SECOND = "each second"

ROWS = [
    Peer("forebay-1", "each commit", "runs again at once", workers=1),
    Peer("forebay-2", "each commit", "runs again at once"),
    Peer("huey-sync", "each commit", "lost", "huey", "huey_peer", HUEY, env={"PEER_SYNCED": "yes"}),
    Peer("huey-nosync", "never", "lost", "huey", "huey_peer", HUEY, env={"PEER_SYNCED": "no"}),
    Peer(
        *("saq", SECOND, "runs again after a minute", "saq", "saq_peer"),
        command=("saq", "saq_peer.settings", "--workers", "2"),
        redis=True,
    ),
    Peer(
        *("celery", SECOND, "runs again; after an hour if the pool died too", "celery", "celery_peer"),
        command=("celery", "-A", "celery_peer", "worker", "-c", "2", "-l", "ERROR"),
        redis=True,
        env={"C_FORCE_ROOT": "1"},
    ),
]


@contextlib.asynccontextmanager
async def place(peer: Peer) -> AsyncIterator[dict[str, str]]:
    """An empty store for one measurement; yields the environment that leads to it."""
    data = Path(tempfile.mkdtemp(prefix="forebay-peers-"))
    port = free_port()
    env = {**os.environ, **peer.env, "PEER": peer.module, "PEER_DATA": str(data)}
    env |= {"PEER_REDIS": f"redis://127.0.0.1:{port}/0", "PYTHONPATH": f"{PEERS}:{BENCH}"}
    env |= {"PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": "1"}
    redis = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(data)]
    redis += ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
    try:
        async with server(redis, port, data) if peer.redis else contextlib.nullcontext():
            yield env
    finally:
        shutil.rmtree(data, ignore_errors=True)


# ---- what is measured -------------------------------------------------------------------------------------


async def measure_peer(peer: Peer, secs: float) -> Figures:
    """Backlog and latency of one peer, each from an empty store."""
    async with place(peer) as env, Driver(peer, env) as driver:
        filled = await driver.ask("fill", BACKLOG_MAX, secs)
        driver.start_workers()
        whole = (await driver.ask("drain", secs))["whole"]
        if not whole:
            driver.kill_workers()
        done = await driver.ask("count")
    figures = {"in_per_s": filled["jobs"] / filled["took_s"], "drained": done["jobs"], "whole": whole}
    figures["missing"] = filled["jobs"] - done["jobs"] if whole else 0
    figures["drained_per_s"] = done["jobs"] / done["took_s"]
    async with place(peer) as env, Driver(peer, env) as driver:
        driver.start_workers()
        figures |= await latency(driver)
    return figures


async def latency(driver: Driver) -> Figures:
    """The median and the 99th percentile at a fixed rate."""
    found = await driver.ask("latency", RATE, LATENCY_JOBS, LOOKED_UP)
    return {
        "p50_ms": quantile(found["times_ms"], 0.5),
        "p99_ms": quantile(found["times_ms"], 0.99),
        "offered_per_s": found["offered"],
        "behind": found["behind"],
        "unanswered": found["unanswered"],
    }


async def measure_forebay(peer: Peer, secs: float) -> Figures:
    """The same of Forebay; and what goes through while workers run."""
    figures = await backlog_of_forebay(peer, secs)
    served = Served(workers=peer.workers).wait_ready()
    try:
        async with place(peer) as env, Driver(peer, env | {"PEER_PORT": str(served.port)}) as driver:
            figures |= await latency(driver)
        count = LINES * max(1, int(secs * 20_000 / LINES))
        await ndjson(served, count // 5)
        figures["through_ndjson_per_s"] = await ndjson(served, count)
        if shutil.which("wrk"):
            figures["through_single_per_s"] = await single(served, max(1, round(secs)))
    finally:
        served.stop()
    return figures


async def backlog_of_forebay(peer: Peer, secs: float) -> Figures:
    """Jobs go in while the queue is paused; then it is resumed and drained."""
    served = Served(workers=peer.workers).wait_ready()
    try:
        await pause(served)
        jobs, began = 0, time.perf_counter()
        while jobs < BACKLOG_MAX and time.perf_counter() - began < secs:
            jobs += 20 * LINES
            await ndjson(served, 20 * LINES, drain=False)
        took = time.perf_counter() - began
        held = served.queue()["open"]
        if held != jobs:
            raise SystemExit(f"{jobs} jobs went in, {held} are there")
        began = time.perf_counter()
        await pause(served, resume=True)
        left = jobs
        while left and time.perf_counter() - began < secs:
            await asyncio.sleep(0.01)
            left = (await asyncio.to_thread(served.queue))["open"]
        drained_s = time.perf_counter() - began
        if left == 0:
            await look_up(served, jobs)
    finally:
        served.stop()
    figures: Figures = {"in_per_s": jobs / took, "drained": jobs - left, "whole": left == 0}
    return figures | {"drained_per_s": (jobs - left) / drained_s}


async def look_up(served: Served, jobs: int) -> None:
    """Fail if a page of the drained jobs is not there with its results."""
    (caller,) = await connect(served.port, 1)
    listed = await asyncio.to_thread(served.get, "/v1/jobs?limit=100")
    for job in listed["items"]:
        path = f"/v1/jobs/{job['job_id']}/result"
        status, body = await caller.call(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        if status != 200 or len(body) < len(PAYLOAD["text"]):  # type: ignore[arg-type]
            raise SystemExit(f"of {jobs} jobs that ended, {path} answered {status}: {body[:300]!r}")


# ---- the machine ------------------------------------------------------------------------------------------


async def calibrate() -> Figures:
    """How fast the machine is just now: plain Python in C, a bare HTTP server, a durable write."""
    decode = msgspec.json.Decoder().decode
    document = json.dumps(PAYLOAD).encode()
    rounds = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(20_000):
            decode(document)
        rounds.append((time.perf_counter() - began) / 20_000 * 1e6)
    with tempfile.TemporaryDirectory(prefix="forebay-peers-") as scratch:
        return {
            "load_average": round(os.getloadavg()[0], 2),
            "stolen_ratio": stolen_ratio(),
            "decode_us": round(min(rounds), 3),
            "fdatasync_ms": round(fdatasync_ms(Path(scratch)), 3),
            "bare_requests_per_s": await bare_requests(Path(scratch)),
        }


def stolen_ratio() -> float:
    """Return the share of the processor time wanted here since boot that the host gave to other guests."""
    times = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    busy = sum(times) - times[3] - times[4]  # of the time that somebody here wanted
    return round(times[7] / max(1, busy), 3)


async def bare_requests(scratch: Path) -> int | None:
    """Requests a second of an empty ASGI application under wrk, or None without wrk."""
    if shutil.which("wrk") is None:
        return None
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "bare:app", "--app-dir", str(PEERS), "--port", str(port)]
    command += ["--no-access-log", "--log-level", "warning", "--loop", "uvloop", "--http", "httptools"]
    async with server(command, port, scratch):
        wrk = await asyncio.create_subprocess_exec(
            *("wrk", "-t1", "-c64", "-d2s", f"http://127.0.0.1:{port}/"), stdout=subprocess.PIPE
        )
        text = (await wrk.communicate())[0].decode()
    found = [line.split()[1] for line in text.splitlines() if line.startswith("Requests/sec:")]
    return round(float(found[0])) if found else None


def said(when: str, machine: Figures) -> str:
    """The calibration as one line."""
    bare = machine["bare_requests_per_s"]
    return (
        f"machine {when}: msgspec decodes 1 KB of JSON in {machine['decode_us']} µs, "
        f"bare uvicorn {f'{bare:,} requests/s' if bare else 'not measured (no wrk)'}, "
        f"fdatasync {machine['fdatasync_ms']} ms, load average {machine['load_average']}, "
        f"stolen by the host {machine['stolen_ratio']:.1%}"
    )


# ---- the run ----------------------------------------------------------------------------------------------

COLUMNS = [
    ("in/s", "in_per_s", "{:,.0f}"),
    ("drained/s", "drained_per_s", "{:,.0f}"),
    ("p50 ms", "p50_ms", "{:.1f}"),
    ("p99 ms", "p99_ms", "{:.1f}"),
    ("through/s NDJSON", "through_ndjson_per_s", "{:,.0f}"),
    ("single", "through_single_per_s", "{:,.0f}"),
]


def medians(runs: Sequence[Figures]) -> Figures:
    """The median of each figure over the rounds, and all of them."""
    keys = [key for _, key, _ in COLUMNS if any(key in run for run in runs)]
    return {key: round(quantile([run[key] for run in runs], 0.5), 2) for key in keys} | {"rounds": list(runs)}


def fell_behind(run: Figures) -> bool:
    """Tell whether submits or results did not keep up with the rate."""
    return bool(run["offered_per_s"] < 0.95 * RATE or run["behind"] > BEHIND_MAX or run["unanswered"])


def table(peers: Sequence[Peer], rows: dict[str, Figures]) -> str:
    """The rows, with what each promises."""
    heads = ["", *(title for title, _, _ in COLUMNS), "synced to disk", "a job whose worker dies"]
    lines = [heads]
    for peer in peers:
        row = rows[peer.name]
        cells = [form.format(row[key]) if key in row else "-" for _, key, form in COLUMNS]
        cells[3] += "*" if any(fell_behind(one) for one in row["rounds"]) else ""
        lines.append([peer.name, *cells, peer.synced, peer.death])
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    shown = []
    for line in lines:
        numbers = [cell.rjust(width) for cell, width in zip(line[1:7], widths[1:7], strict=True)]
        words = [cell.ljust(width) for cell, width in zip(line[7:], widths[7:], strict=True)]
        shown.append("  ".join([line[0].ljust(widths[0]), *numbers, *words]).rstrip())
    if any("*" in line[4] for line in lines):
        shown.append("* could not keep up with the rate: the latency says how long the run was")
    for peer in peers:
        missing = sum(one.get("missing", 0) for one in rows[peer.name]["rounds"])
        if missing:
            shown.append(
                f"{peer.name}: {missing} jobs went in and had no result when it had nothing left to do"
            )
    return "\n".join(shown)


async def run(peers: Sequence[Peer], secs: float, rounds: int) -> Figures:
    """Measure; SIGTERM ends it like Ctrl-C, with everything that it started."""
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    machine = [await calibrate()]
    print(said("before", machine[0]), flush=True)
    runs: dict[str, list[Figures]] = {peer.name: [] for peer in peers}
    for number in range(1, rounds + 1):
        for peer in peers:
            measured = await (measure_peer if peer.venv else measure_forebay)(peer, secs)
            runs[peer.name].append(measured)
            shown = ", ".join(
                f"{key} {form.format(measured[key])}" for _, key, form in COLUMNS if key in measured
            )
            print(f"round {number} {peer.name}: {shown}", file=sys.stderr, flush=True)
    machine.append(await calibrate())
    print(said("after", machine[1]), flush=True)
    rows = {
        peer.name: {"synced": peer.synced, "worker_dies": peer.death, **medians(runs[peer.name])}
        for peer in peers
    }
    return {"secs": secs, "machine": machine, "rows": rows}


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=[peer.name for peer in ROWS], metavar="ROW", default=None
    )
    parser.add_argument("--secs", type=float, default=3.0, help="bound on one fill and on one drain (3)")
    parser.add_argument("--rounds", type=int, default=3, help="times each row is measured (3)")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    peers = [peer for peer in ROWS if options.only is None or peer.name in options.only]
    prepare(peers)
    with machine_lock():
        try:
            figures = uvloop.run(run(peers, options.secs, options.rounds))
        except asyncio.CancelledError:
            raise SystemExit("ended by SIGTERM") from None
    print("\n" + table(peers, figures["rows"]))
    print(json.dumps(figures))
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
