"""Callbacks: deliveries a second to a receiver beside the server, and the processor time of one.

The same jobs are run with a callback and without; the difference of the server's processor time is what telling
costs. The receiver is an asyncio protocol in this process that answers at once and checks nothing.
"""

import argparse
import asyncio
import json
import time
from typing import Any

import uvloop
from harness import PAYLOAD, Caller, Served, machine_lock, post, quantile, show

GROUP = 500  # jobs in one NDJSON body
WAIT_MAX_S = 300.0
OK = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"


class Receiver(asyncio.Protocol):
    """Counts messages and answers 204. One server's connections share the counts."""

    count = 0
    first_at = last_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport: Any = transport
        self._held = b""

    def data_received(self, data: bytes) -> None:
        """Answer every whole request."""
        self._held += data
        while (end := self._held.find(b"\r\n\r\n")) >= 0:
            head = self._held[:end].lower()
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            if len(self._held) < end + 4 + length:
                return
            self._held = self._held[end + 4 + length :]
            Receiver.last_at = time.perf_counter()
            Receiver.first_at = Receiver.first_at or Receiver.last_at
            Receiver.count += 1
            self._transport.write(OK)


async def burst(count: int, port: int, *, callback: bool) -> tuple[float, float]:
    """Run `count` jobs; return the processor seconds of the server and deliveries a second (0 without)."""
    Receiver.count, Receiver.first_at = 0, 0.0
    server = Served(FOREBAY_WEBHOOKS_ALLOW_PRIVATE="true").wait_ready()
    try:
        job: dict[str, Any] = {"task": "echo", "payload": PAYLOAD}
        if callback:
            job["callback_url"] = f"http://127.0.0.1:{port}/hook"
        body = post(b"\n".join([json.dumps(job).encode()] * GROUP), ndjson=True)
        before_s = server.cpu_s()
        loop = asyncio.get_running_loop()
        _, caller = await loop.create_connection(Caller, "127.0.0.1", server.port)
        for _ in range(count // GROUP):
            await caller.call(body)
        ends_at = time.perf_counter() + WAIT_MAX_S
        while Receiver.count < count if callback else server.queue()["open"]:
            assert time.perf_counter() < ends_at, f"{Receiver.count} of {count} told"
            await asyncio.sleep(0.05)
        rate = count / (Receiver.last_at - Receiver.first_at) if callback else 0.0
        return server.cpu_s() - before_s, rate
    finally:
        server.stop()


async def run(count: int, repeat: int) -> dict[str, float]:
    """Return the figures."""
    listener = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    rates: list[float] = []
    costs_us: list[float] = []
    for _ in range(repeat):  # in turns: the machine's speed drifts
        without_s, _ = await burst(count, port, callback=False)
        with_s, rate = await burst(count, port, callback=True)
        rates.append(rate)
        costs_us.append((with_s - without_s) / count * 1e6)
    listener.close()
    return {"deliveries_per_s": quantile(rates, 0.5), "cpu_us_each": quantile(costs_us, 0.5)}


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    with machine_lock():
        figures = uvloop.run(run(options.count, options.repeat))
    rows = [
        ("deliveries/s to one receiver", f"{figures['deliveries_per_s']:,.0f}", "-"),
        ("server's processor time of one", f"{figures['cpu_us_each']:,.0f} µs", "-"),
    ]
    show("Callbacks", rows, figures, options.json)


if __name__ == "__main__":
    main()
