"""Durable jobs, end to end: rates, latencies, a backlog of a million, recovery, cost at rest.

    python bench/jobs.py                      # everything, about four minutes
    python bench/jobs.py ndjson single        # some measures
    python bench/jobs.py --json out.json

Every rate is from the first submit until the last RESULT IS STORED, 1 KB in and 1 KB out, full sync, one
real child process. Bars are printed beside the figures.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop
from harness import Served, connect, machine_lock, post, quantile, show, submission, wrk

Figures = dict[str, Any]
LINES = 500  # jobs in one NDJSON request
PARTS = ("ndjson", "single", "inprocess", "latency", "rest", "recovery", "backlog")


async def drained(served: Served) -> None:
    """Return when nothing is open."""
    while (await asyncio.to_thread(served.queue))["open"]:
        await asyncio.sleep(0.05)


async def ndjson(served: Served, count: int, *, drain: bool = True) -> float:
    """Return jobs a second by NDJSON over four connections."""
    body = b"\n".join(submission(number) for number in range(LINES))
    request = post(body, ndjson=True)
    left = count // LINES
    callers = await connect(served.port, 4)

    async def work(caller: Any) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            status, answer = await caller.call(request)
            if status != 200 or answer.count(b'"status":202') != LINES:
                raise SystemExit(f"NDJSON submit answered {status}: {answer[:300]!r}")

    began = time.perf_counter()
    await asyncio.gather(*(work(caller) for caller in callers))
    if drain:
        await drained(served)
    return count / (time.perf_counter() - began)


async def single(served: Served, seconds: int) -> float:
    """Return jobs a second by single calls, 64 in flight, sent by wrk: a client in Python is slower than
    the server."""
    url = f"http://127.0.0.1:{served.port}/v1/jobs"
    command = wrk(url, submission(), expected=202, seconds=seconds)
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    text = (await process.communicate())[0].decode()
    found = re.search(r"answers (\d+) refused (\d+)", text)
    if found is None or int(found[2]):
        raise SystemExit(f"wrk: {text}")
    await drained(served)
    return int(found[1]) / (time.perf_counter() - began)


async def latency(served: Served, count: int, rate: float | None) -> list[float]:
    """Return milliseconds from submit to result over HTTP (`Prefer: wait`): one after another, or open
    loop at a rate, timed from the scheduled send."""
    request = post(submission(), extra="Prefer: wait=10\r\n")
    times: list[float] = []
    if rate is None:
        (caller,) = await connect(served.port, 1)
        for _ in range(count):
            began = time.perf_counter()
            status, _ = await caller.call(request)
            assert status == 200
            times.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.005)
        return times[count // 10 :]
    free = await connect(served.port, 64)
    began = time.perf_counter() + 0.1

    async def one(at: float) -> None:
        caller = free.pop() if free else (await connect(served.port, 1))[0]
        status, _ = await caller.call(request)
        assert status == 200
        times.append((time.perf_counter() - at) * 1000)
        free.append(caller)

    tasks: list[asyncio.Task[None]] = []
    for number in range(count):
        at = began + number / rate
        wait = at - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.ensure_future(one(at)))
    await asyncio.gather(*tasks)
    return times[count // 10 :]


async def measure_rates(figures: Figures, which: set[str], repeat: int) -> None:
    """NDJSON and single calls, the best and the median of a few runs on one server each."""
    for name, run, count in (("ndjson", ndjson, 60_000), ("single", single, 5)):
        if name in which:
            served = Served().wait_ready()
            try:
                await run(served, max(1, count // 5))
                rates = [await run(served, count) for _ in range(repeat)]
            finally:
                served.stop()
            figures[f"{name}_jobs_per_s"] = round(quantile(rates, 0.5))
            figures[f"{name}_jobs_per_s_all"] = [round(rate) for rate in rates]


async def measure_latency(figures: Figures) -> None:
    """Idle, 500/s and 2,000/s."""
    served = Served().wait_ready()
    try:
        await latency(served, 200, None)
        for name, count, rate in (("idle", 1000, None), ("500", 5000, 500.0), ("2000", 16_000, 2000.0)):
            times = await latency(served, count, rate)
            figures[f"latency_{name}_p50_ms"] = round(quantile(times, 0.5), 2)
            figures[f"latency_{name}_p99_ms"] = round(quantile(times, 0.99), 2)
    finally:
        served.stop()


async def measure_rest(figures: Figures) -> None:
    """Processor share and memory with nothing to do; start to ready."""
    served = Served(workers=2).wait_ready()
    try:
        await asyncio.sleep(3)
        before, began = served.cpu_s(), time.perf_counter()
        await asyncio.sleep(10)
        figures["idle_cpu_percent"] = round(
            (served.cpu_s() - before) / (time.perf_counter() - began) * 100, 2
        )
        figures["idle_rss_mb"] = round(served.rss_mb(), 1)
        figures["start_to_ready_s"] = round(served.ready_s, 2)
    finally:
        served.stop()


async def measure_backlog(figures: Figures, waiting: int, repeat: int) -> None:
    """The NDJSON rate with a million jobs waiting in another queue of the same store, against none."""
    plain, full = Served().wait_ready(), Served().wait_ready()
    try:
        full.get("/healthz")
        await pause(full)
        await ndjson(full, waiting, drain=False)
        figures["backlog_waiting"] = full.queue()["depth"]
        figures["backlog_rss_mb"] = round(full.rss_mb(), 1)
        ratios = []
        for _ in range(repeat):
            base = await ndjson(plain, 40_000)
            ratios.append(await churn(full, 40_000) / base)
        figures["backlog_ratio"] = round(quantile(ratios, 0.5), 3)
        began = time.perf_counter()
        data = full.data
        full.kill()
        again = Served(data=data).wait_ready()
        figures["backlog_recovery_s"] = round(time.perf_counter() - began, 2)
        again.kill()
    finally:
        plain.stop()
        full.stop()


async def pause(served: Served, *, resume: bool = False) -> None:
    """Pause or resume the queue."""
    (caller,) = await connect(served.port, 1)
    verb = "resume" if resume else "pause"
    request = f"POST /v1/queues/echo/{verb} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    await caller.call(request.encode())


async def churn(served: Served, count: int) -> float:
    """Return finished jobs a second while as many are submitted, with the backlog standing."""
    depth = served.queue()["depth"]
    await pause(served, resume=True)
    began = time.perf_counter()
    await ndjson(served, count, drain=False)
    while (await asyncio.to_thread(served.queue))["open"] > depth:
        await asyncio.sleep(0.01)
    took = time.perf_counter() - began
    await pause(served)
    return count / took


async def measure_recovery(figures: Figures) -> None:
    """A child dies, the whole server dies: until a job that was running runs again and ends."""
    times = []
    served = Served("slow.py", workers=2).wait_ready()
    try:
        for _ in range(5):
            times.append(await recover_child(served))
        figures["recovery_child_s"] = round(max(times), 2)
        figures["recovery_server_s"] = round(await recover_server(served), 2)
    finally:
        served.stop()


async def recover_child(served: Served) -> float:
    """Kill the child that runs a job; return seconds until the job's next run started."""
    mark = Path(tempfile.mkdtemp())
    (caller,) = await connect(served.port, 1)
    body = json.dumps({"task": "echo", "payload": {"mark": str(mark)}, "attempts_max": 3}).encode()
    await caller.call(post(body))
    pid = await started(mark, 1)
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    await started(mark, 2)
    took = time.perf_counter() - began
    await drained(served)
    return took


async def recover_server(served: Served) -> float:
    """Kill the server while it runs a job, start it again; return seconds until the job's next run."""
    mark = Path(tempfile.mkdtemp())
    (caller,) = await connect(served.port, 1)
    await caller.call(post(json.dumps({"task": "echo", "payload": {"mark": str(mark)}}).encode()))
    await started(mark, 1)
    began = time.perf_counter()
    served.kill()
    again = Served("slow.py", workers=2, data=served.data)
    await started(mark, 2)
    took = time.perf_counter() - began
    again.stop()
    return took


async def started(mark: Path, runs: int) -> int:
    """Return the process id of run number `runs`, when it has begun."""
    while True:
        with contextlib.suppress(OSError, ValueError, IndexError):
            lines = (mark / "runs").read_text().split()
            return int(lines[runs - 1])
        await asyncio.sleep(0.001)


BARS: list[tuple[str, str, str, Callable[[float], bool]]] = [
    ("ndjson_jobs_per_s", "jobs/s by NDJSON", ">= 25,000", lambda x: x >= 25_000),
    ("single_jobs_per_s", "jobs/s by single calls, 64 in flight", ">= 10,000", lambda x: x >= 10_000),
    ("inprocess_jobs_per_s", "jobs/s in process", ">= 35,000", lambda x: x >= 35_000),
    ("latency_idle_p50_ms", "idle submit to result, p50 ms", "<= 1.5", lambda x: x <= 1.5),
    ("latency_idle_p99_ms", "idle submit to result, p99 ms", "<= 3", lambda x: x <= 3),
    ("latency_500_p99_ms", "at 500/s, p99 ms", "<= 4", lambda x: x <= 4),
    ("latency_2000_p99_ms", "at 2,000/s, p99 ms", "<= 8", lambda x: x <= 8),
    ("backlog_ratio", "rate with 1,000,000 waiting / with none", ">= 0.80", lambda x: x >= 0.8),
    ("backlog_rss_mb", "memory with 1,000,000 waiting, MB", "<= 250", lambda x: x <= 250),
    ("backlog_recovery_s", "start with 1,000,000 waiting, s", "", lambda x: True),
    ("recovery_child_s", "a child dies: job runs elsewhere, s", "< 0.6", lambda x: x < 0.6),
    ("recovery_server_s", "the server dies: job runs again, s", "< 2", lambda x: x < 2),
    ("idle_cpu_percent", "processor at rest, %", "<= 0.5", lambda x: x <= 0.5),
    ("idle_rss_mb", "memory of the node at rest, MB", "<= 80", lambda x: x <= 80),
    ("start_to_ready_s", "start to ready, s", "", lambda x: True),
]


async def run(which: set[str], repeat: int, waiting: int) -> Figures:
    """Measure what was asked for."""
    figures: Figures = {}
    await measure_rates(figures, which, repeat)
    parts: list[tuple[str, Callable[[], Awaitable[None]]]] = [
        ("latency", lambda: measure_latency(figures)),
        ("rest", lambda: measure_rest(figures)),
        ("recovery", lambda: measure_recovery(figures)),
        ("backlog", lambda: measure_backlog(figures, waiting, repeat)),
    ]
    for name, part in parts:
        if name in which:
            await part()
    if "inprocess" in which:
        from inprocess import measure

        figures["inprocess_jobs_per_s"] = await measure(repeat)
    return figures


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("which", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--json")
    options = parser.parse_args()
    with machine_lock():
        figures = uvloop.run(run(set(options.which or PARTS), options.repeat, options.waiting))
    rows = []
    for key, what, bar, good in BARS:
        if key in figures:
            rows.append((what, f"{figures[key]:,}", f"{bar} {'' if good(figures[key]) else '  MISSED'}"))
    show("Durable jobs, end to end", rows, figures, options.json)


if __name__ == "__main__":
    main()
