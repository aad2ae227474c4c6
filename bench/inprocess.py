"""Jobs a second without HTTP: the engine, the node and a real child in one process, as `serve` has them."""

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from harness import BENCH, PAYLOAD, quantile

from forebay.brokers.sqlite import SqliteBroker
from forebay.clock import SystemClock
from forebay.config import process_environment
from forebay.core.estimator import Estimator
from forebay.core.job import Job
from forebay.core.lifecycle import State
from forebay.core.task import TaskSpec
from forebay.node.node import Node, NodePlan
from forebay.ports.broker import Change

GROUP = 250  # jobs in one call
OPEN_MAX = 4000  # submitted and not finished


async def measure(repeat: int, count: int = 60_000) -> int:
    """Return the median jobs a second, submit to result stored."""
    data = Path(tempfile.mkdtemp(prefix="forebay-bench-"))
    clock = SystemClock()
    broker = await SqliteBroker.open(data / "store", clock=clock)
    plan = NodePlan(
        app=str(BENCH / "noop.py"), tasks=[TaskSpec(name="echo")], workers=1, env=process_environment()
    )
    node = Node(plan, broker=broker, clock=clock, worker="bench", estimators={"echo": Estimator()})
    node.start()
    try:
        while node.unready_reason() is not None:
            await asyncio.sleep(0.01)
        await burst(broker, clock, count // 5)
        rates = [await burst(broker, clock, count) for _ in range(repeat)]
    finally:
        await node.drain(1.0)
        await node.close()
        await broker.close()
        shutil.rmtree(data, ignore_errors=True)
    return round(quantile(rates, 0.5))


async def burst(broker: SqliteBroker, clock: SystemClock, count: int) -> float:
    """Submit `count` jobs in groups, at most OPEN_MAX unfinished; return jobs a second to the last result."""
    payload = json.dumps(PAYLOAD).encode()
    finished = 0
    moved = asyncio.Event()

    def changed(changes: Sequence[Change]) -> None:
        nonlocal finished
        done = sum(1 for change in changes if change.state is State.SUCCEEDED)
        if done:
            finished += done
            moved.set()

    remove = broker.on_change(changed)
    began = time.perf_counter()
    submitted = 0
    waiting: set[asyncio.Task[object]] = set()
    while finished < count:
        while submitted < count and submitted - finished < OPEN_MAX:
            now = clock.now()
            jobs = [Job(broker.new_id(now), "echo", payload, now, now) for _ in range(GROUP)]
            task = asyncio.ensure_future(broker.enqueue(jobs, now=now))
            waiting.add(task)  # type: ignore[arg-type]
            task.add_done_callback(waiting.discard)  # type: ignore[arg-type]
            submitted += GROUP
            await asyncio.sleep(0)
        moved.clear()
        if finished < count:
            await moved.wait()
    took = time.perf_counter() - began
    remove()
    return count / took
