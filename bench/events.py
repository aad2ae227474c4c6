"""Fan-out of one job's events to many readers: delivered a second, delay, processor time, memory.

One generator yields the time; every reader holds an event stream of that job over HTTP. The readers share the
machine with the server, so the delay holds their own work too.
"""

import argparse
import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

from harness import Served, machine_lock

TIMED_EVERY = 20  # one reader of so many looks at every time it gets; the others count


class Reader(asyncio.Protocol):
    """One event stream: counts parts, and when it is timed notes how old each is."""

    def __init__(self, path: str, *, timed: bool) -> None:
        self.head = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
        self.timed = timed
        self.events = self.parts = self.gaps = 0
        self.delays: list[float] = []
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the events."""
        self.transport = transport
        transport.write(self.head)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Count what came. Events are small and mostly whole in one piece; a cut one is not timed."""
        self.events += data.count(b"event: partial")
        self.gaps += data.count(b"event: gap")
        if self.timed:
            now = time.time()
            for found in re.finditer(rb'"parts":\[([^\]]*)\]', data):
                times = [float(one) for one in found[1].split(b",")]
                self.parts += len(times)
                self.delays += [now - one for one in times]
        if b"event: done" in data and not self.ended.done():
            self.ended.set_result(None)

    def connection_lost(self, _: Exception | None) -> None:
        """Nothing follows."""
        if not self.ended.done():
            self.ended.set_result(None)


async def fan_out(served: Served, readers: int, rate: float, seconds: float) -> dict[str, Any]:
    """Run one job with so many readers."""
    loop = asyncio.get_running_loop()
    # The job begins when every reader is there: it waits in a paused queue.
    await loop.run_in_executor(None, post, served, "/v1/queues/tick/pause", None)
    job = await loop.run_in_executor(
        None, post, served, "/v1/jobs", {"task": "tick", "payload": {"rate": rate, "seconds": seconds}}
    )
    path = f"/v1/jobs/{job['job_id']}/events"
    held: list[Reader] = []
    for number in range(readers):
        timed = number % TIMED_EVERY == 0
        _, reader = await loop.create_connection(
            lambda timed=timed: Reader(path, timed=timed),  # type: ignore[misc]
            "127.0.0.1",
            served.port,
        )
        held.append(reader)
    await asyncio.sleep(1.0)
    rss_mb, cpu_s, began = served.rss_mb(), served.cpu_s(), time.perf_counter()
    most_mb = rss_mb
    await loop.run_in_executor(None, post, served, "/v1/queues/tick/resume", None)
    waiting = asyncio.gather(*(reader.ended for reader in held))
    while not waiting.done():
        await asyncio.wait({waiting}, timeout=0.5)
        most_mb = max(most_mb, served.rss_mb())
    took_s = time.perf_counter() - began
    cpu_s = await loop.run_in_executor(None, served.cpu_s) - cpu_s
    delays = sorted(delay for reader in held for delay in reader.delays)
    events = sum(reader.events for reader in held)
    timed = [reader for reader in held if reader.timed]
    return {
        "readers": readers,
        "parts_per_s": rate,
        "parts_yielded": int(rate * seconds),
        "parts_seen_least": min(reader.parts for reader in timed),
        "events": events,
        "events_per_s": round(events / took_s),
        "parts_delivered_per_s": round(sum(r.parts for r in timed) / len(timed) * readers / took_s),
        "gaps": sum(reader.gaps for reader in held),
        "delay_p50_ms": round(1000 * delays[len(delays) // 2], 1),
        "delay_p99_ms": round(1000 * delays[int(len(delays) * 0.99)], 1),
        "server_cpu_share": round(cpu_s / took_s, 3),
        "server_us_an_event": round(1e6 * cpu_s / max(1, events), 1),
        "rss_before_mb": round(rss_mb, 1),
        "rss_most_mb": round(most_mb, 1),
    }


def post(served: Served, path: str, body: Any) -> Any:
    """Return the JSON of one POST."""
    import urllib.request

    request = urllib.request.Request(
        f"http://127.0.0.1:{served.port}{path}",
        data=b"" if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json"},
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--readers", type=int, nargs="*", default=[1, 100, 1000])
    parser.add_argument("--rate", type=float, default=50.0, help="parts a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long parts are yielded")
    parser.add_argument("--json", help="write the figures to this file too")
    options = parser.parse_args()
    found = []
    with machine_lock():
        for readers in options.readers:
            served = Served("ticking.py").wait_ready()
            try:
                found.append(asyncio.run(fan_out(served, readers, options.rate, options.seconds)))
            finally:
                served.stop()
            print("  ".join(f"{name} {value}" for name, value in found[-1].items()), flush=True)
    print(json.dumps(found))
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
