"""A process that works on a store until it dies, and says on its output what was acknowledged.

    python life.py DIRECTORY SYNC SEED

Lines: "stored ID", "final ID STATE", "granted ID FENCE", "broken TEXT", "refused TEXT".
"""

import asyncio
import os
import random
import sys
from pathlib import Path
from typing import Any

from forebay.brokers.sqlite import SqliteBroker
from forebay.clock import SystemClock
from forebay.core import settle
from forebay.core.job import Job, JobError, Lease
from forebay.core.lifecycle import FINAL
from forebay.errors import ForebayError


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def main(directory: Path, sync: Any, seed: int) -> None:
    clock, draw = SystemClock(), random.Random(seed)
    broker = await SqliteBroker.open(
        directory, clock=clock, sync=sync, on_broken=lambda error: say("broken", error)
    )
    swept = await broker.sweep(limit=10_000, now=clock.now())
    lost = JobError("lost", "the process ended")
    await broker.commit(
        [settle.lose(lease, error=lost, now=clock.now()) for lease in swept.overdue], now=clock.now()
    )
    say("ready")
    held: list[Lease] = []
    while True:
        now = clock.now()
        new = [
            Job(broker.new_id(now), "t", os.urandom(draw.choice((10, 2000))), now, now, attempts_max=1000)
            for _ in range(draw.randrange(1, 5))
        ]
        steps = [
            settle.complete(lease, output=b"1", now=now) for lease in held[: draw.randrange(len(held) + 1)]
        ]
        del held[: len(steps)]
        receipts, leases, done = await asyncio.gather(
            broker.enqueue(new, now=now),
            broker.lease("t", limit=draw.randrange(4), lease_s=600.0, worker=str(os.getpid()), now=now),
            broker.commit(steps, now=now),
        )
        held += leases
        for receipt in receipts:
            say("stored", receipt.job_id)
        for lease in leases:
            say("granted", lease.job.id, lease.fence)
        for step, applied in zip(steps, done, strict=True):
            assert applied
            if step.state in FINAL:
                say("final", step.job_id, step.state.value)


if __name__ == "__main__":
    try:
        asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
    except ForebayError as error:
        say("refused", type(error).__name__, error)
        sys.exit(3)
