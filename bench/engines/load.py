"""Load on Forebay over HTTP: many jobs in NDJSON, many single calls, one after another; until all results are stored."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

from bench.harness import PAYLOAD, Caller, Served, connect, post, submission

LINES = 500  # jobs in one NDJSON request
CONNECTIONS = 4  # that send NDJSON
IN_FLIGHT = 64  # single calls
LOOK_EVERY_S = 0.05
END_MAX_S = 300.0


def many(jobs: int, **more: Any) -> bytes:
    """Return a prepared request of so many lines; `more` goes into each payload."""
    lines = ({"task": "echo", "payload": {**PAYLOAD, "id": number, **more}} for number in range(jobs))
    return post(b"\n".join(json.dumps(line).encode() for line in lines), ndjson=True)


async def through(doors: Sequence[Served], jobs: int, *, standing: int = 0, **more: Any) -> float:
    """Return jobs a second by NDJSON, first submit to last result; `standing` were waiting before."""
    lines = min(LINES, jobs)
    request = many(lines, **more)
    began = time.perf_counter()
    await _share(doors, CONNECTIONS, jobs // lines, request, b'"status":202', lines)
    await ended(doors[0], standing)
    return jobs // lines * lines / (time.perf_counter() - began)


async def singly(doors: Sequence[Served], jobs: int) -> float:
    """Return jobs a second by single calls, first submit to last result."""
    began = time.perf_counter()
    await _share(doors, IN_FLIGHT, jobs, post(submission()), b'"job_id"', 1)
    await ended(doors[0])
    return jobs / (time.perf_counter() - began)


async def one_by_one(door: Served, jobs: int, gap_s: float) -> list[float]:
    """Return milliseconds from each submit to its result (`Prefer: wait`), with a pause before each."""
    request = post(submission(), extra="Prefer: wait=30\r\n")
    (caller,) = await connect(door.port, 1)
    times = []
    for _ in range(jobs):
        await asyncio.sleep(gap_s)
        began = time.perf_counter()
        status, body = await caller.call(request)
        if status != 200:
            raise SystemExit(f"a job was not answered: {status} {body[:300]!r}")
        times.append((time.perf_counter() - began) * 1000)
    caller.transport.close()
    return times


async def _share(
    doors: Sequence[Served], connections: int, calls: int, request: bytes, mark: bytes, marks: int
) -> None:
    left = calls
    callers = [
        caller
        for number, door in enumerate(doors)
        for caller in await connect(door.port, _part(connections, doors, number))
    ]

    async def work(caller: Caller) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            status, answer = await caller.call(request)
            if status not in {200, 202} or answer.count(mark) != marks:
                raise SystemExit(f"a submit was answered {status}: {answer[:300]!r}")

    await asyncio.gather(*(work(caller) for caller in callers))
    for caller in callers:
        caller.transport.close()


def _part(connections: int, doors: Sequence[Served], number: int) -> int:
    return connections // len(doors) + (number < connections % len(doors))


async def ended(door: Served, begin_open: int = 0) -> None:
    """Return when no more than so many jobs are open."""
    late = time.perf_counter() + END_MAX_S
    while (await asyncio.to_thread(door.queue))["open"] > begin_open:
        if time.perf_counter() > late:
            raise SystemExit("the jobs did not end")
        await asyncio.sleep(LOOK_EVERY_S)


async def tap(door: Served, verb: str) -> None:
    """Pause or resume the queue."""
    (caller,) = await connect(door.port, 1)
    status, body = await caller.call(
        f"POST /v1/queues/echo/{verb} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode()
    )
    if status != 200:
        raise SystemExit(f"{verb} was answered {status}: {body[:300]!r}")
    caller.transport.close()


async def answer(door: Served, path: str) -> Any:
    """Return the JSON of one GET."""
    return await asyncio.to_thread(door.get, path)
