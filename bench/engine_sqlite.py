"""How fast the embedded engine is alone: jobs/s through flushes of 100 + 100 + 100, its memory, its recovery.

    python bench/engine_sqlite.py [--seconds 5] [--waiting 1000000] [--dir DIR] [--json FILE]

A job is stored (1 KB in), leased and settled (1 KB out), each durably. Rows alternate between the ways to
sync, so that a machine that drifts slows all of them.
"""

import argparse
import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from forebay.brokers.sqlite import SqliteBroker
from forebay.clock import SystemClock
from forebay.core import settle
from forebay.core.job import Job, Lease

TASK = "echo"
PAYLOAD = b'{"text":"' + b"x" * 1010 + b'"}'
OUTPUT = b'"' + b"y" * 1022 + b'"'
BATCH = 100


def main(argv: Sequence[str] | None = None) -> None:
    """Run the rows and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args(argv)
    base = Path(tempfile.mkdtemp(prefix="forebay-bench-", dir=args.dir))
    try:
        figures = asyncio.run(measure(base, args.seconds, args.rounds, args.waiting))
    finally:
        shutil.rmtree(base, ignore_errors=True)
    for name, value in figures.items():
        print(f"{name:<44} {value:>12,.1f}" if isinstance(value, float) else f"{name:<44} {value:>12}")
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")


async def measure(base: Path, seconds: float, rounds: int, waiting: int) -> dict[str, Any]:
    """Return every figure by name."""
    figures: dict[str, Any] = {"fdatasync_ms": fdatasync_ms(base)}
    clock = SystemClock()
    for state in ("empty", "waiting"):
        brokers = {}
        for sync in ("full", "own"):
            broker = await SqliteBroker.open(base / f"{state}-{sync}", clock=clock, sync=sync)
            brokers[sync] = broker
            if state == "waiting":
                await fill(broker, clock, waiting)
                figures[f"{sync}_rss_mb_with_{waiting}_waiting"] = rss_mb()
        rates: dict[str, list[float]] = {sync: [] for sync in brokers}
        costs: dict[str, list[float]] = {sync: [] for sync in brokers}
        for _ in range(rounds):
            for sync, broker in brokers.items():
                per_s, cpu_us = await rate(broker, clock, seconds)
                rates[sync].append(per_s)
                costs[sync].append(cpu_us)
        for sync, broker in brokers.items():
            figures[f"{sync}_{state}_jobs_per_s"] = max(rates[sync])
            figures[f"{sync}_{state}_jobs_per_s_median"] = sorted(rates[sync])[len(rates[sync]) // 2]
            figures[f"{sync}_{state}_cpu_us_per_job"] = min(costs[sync])
            await broker.close()
        if state == "waiting":
            began = time.perf_counter()
            broker = await SqliteBroker.open(base / "waiting-full", clock=clock)
            figures[f"recovery_s_with_{waiting}_waiting"] = time.perf_counter() - began
            assert broker.depth_now(TASK, now=clock.now()).queued == waiting
            await broker.close()
    return figures


async def rate(broker: SqliteBroker, clock: SystemClock, seconds: float) -> tuple[float, float]:
    """Return jobs stored, leased and settled a second, each flush doing 100 of each, and the processor time
    of one in microseconds (both threads, and making the job and its settlement).
    """
    began, cpu = time.perf_counter(), time.process_time()
    settled = 0
    held: list[Lease] = []
    while (spent := time.perf_counter() - began) < seconds:
        now = clock.now()
        steps = [settle.complete(lease, output=OUTPUT, now=now) for lease in held]
        _, held, done = await asyncio.gather(
            broker.enqueue(some_jobs(broker, now, BATCH), now=now),
            broker.lease(TASK, limit=BATCH, lease_s=30.0, worker="bench", now=now),
            broker.commit(steps, now=now),
        )
        assert all(done)
        settled += len(done)
    cpu = time.process_time() - cpu
    now = clock.now()
    await broker.commit([settle.complete(lease, output=OUTPUT, now=now) for lease in held], now=now)
    return settled / spent, cpu / settled * 1e6


async def fill(broker: SqliteBroker, clock: SystemClock, count: int) -> None:
    """Store `count` jobs that nobody leases yet."""
    for _ in range(0, count, 1000):
        now = clock.now()
        await broker.enqueue(some_jobs(broker, now, 1000), now=now)


def some_jobs(broker: SqliteBroker, now: float, count: int) -> list[Job]:
    """Return new jobs with a ttl, as the server makes them."""
    new_id = broker.new_id
    return [
        Job(new_id(now), TASK, PAYLOAD, now, now, expires_at=now + 86_400.0, body_hash=b"0" * 16)
        for _ in range(count)
    ]


def fdatasync_ms(base: Path) -> float:
    """Return the median time of one small durable write here."""
    times = []
    with open(base / "probe", "wb", buffering=0) as file:
        for _ in range(200):
            file.write(b"z" * 8192)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return sorted(times)[100] * 1000


def rss_mb() -> float:
    """Return this process's resident memory."""
    return psutil.Process().memory_info().rss / 1e6


if __name__ == "__main__":
    main()
