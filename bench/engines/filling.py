"""Fills a store with waiting jobs through the engine itself, without HTTP: python -m bench.engines.filling URL JOBS"""

import asyncio
import json
import sys
import tempfile
import time

from bench.harness import PAYLOAD
from forebay.clock import SystemClock
from forebay.config import Settings
from forebay.core.job import Job
from forebay.engines import open_engine

GROUP = 2_000  # jobs in one call
CALLS = 2  # under way at once


async def main(url: str, jobs: int) -> None:
    """Store so many jobs of the task `echo`."""
    clock = SystemClock()
    broker = await open_engine(Settings(broker=url, data=tempfile.mkdtemp()), clock)
    payload = json.dumps(PAYLOAD).encode()
    left = jobs

    async def store() -> None:
        nonlocal left
        while left > 0:
            now, count = clock.now(), min(GROUP, left)
            left -= count
            await broker.enqueue(
                [Job(broker.new_id(now), "echo", payload, now, now) for _ in range(count)], now=now
            )

    began = time.perf_counter()
    await asyncio.gather(*(store() for _ in range(CALLS)))
    await broker.close()
    print(json.dumps({"stored_per_s": round(jobs / (time.perf_counter() - began))}))


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
