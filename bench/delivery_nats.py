"""What JetStream delivers: hints a second sent and received, and how long one takes on an idle connection.

    python -m bench.delivery_nats                    # a server of its own
    python -m bench.delivery_nats nats://host:4222   # yours

Rates are of one connection each way; the idle latency is from `send` being called to `receive` having returned.
"""

import argparse
import asyncio
import secrets
import statistics
import time

from forebay.brokers.nats import NatsTransport
from tests.brokers.nats.server import NatsServer

HINT = secrets.token_bytes(80)  # about what a job's id and its code are


async def sent(one, task, count, group):
    began = time.perf_counter()
    for _ in range(count // group):
        await one.send(task, [HINT] * group)
    return count / (time.perf_counter() - began)


async def received(one, task, count, limit):
    began, got = time.perf_counter(), 0
    while got < count:
        hints = await one.receive(task, limit=limit, wait_s=5.0)
        await one.ack(task, hints)
        got += len(hints)
    return got / (time.perf_counter() - began)


async def idle(sender, receiver, task, rounds, pause_s):
    took = []
    for _ in range(rounds):
        waiting = asyncio.ensure_future(receiver.receive(task, limit=16, wait_s=20.0))
        await asyncio.sleep(pause_s)
        began = time.perf_counter()
        sending = asyncio.ensure_future(sender.send(task, [HINT]))
        hints = await waiting
        took.append(1e3 * (time.perf_counter() - began))
        await sending
        await receiver.ack(task, hints)
    return took


async def run(url, args):
    prefix = f"bench-{secrets.token_hex(4)}"
    url = f"{url}{'&' if '?' in url else '?'}prefix={prefix}"
    sender, receiver = await NatsTransport.open(url), await NatsTransport.open(url)
    try:
        for group in (1, 10, 100, 500):
            count = args.count if group > 1 else args.count // 10
            out = await sent(sender, f"g{group}", count, group)
            into = await received(receiver, f"g{group}", count, max(group, 10))
            print(f"groups of {group:3}: sent {out:8,.0f}/s   received and acknowledged {into:8,.0f}/s")
        await receiver.receive("idle", limit=1, wait_s=0.0)
        took = sorted(await idle(sender, receiver, "idle", args.rounds, 0.02))
        p99 = took[min(len(took) - 1, int(0.99 * len(took)))]
        print(f"idle, {len(took)} hints: p50 {statistics.median(took):.2f} ms, p99 {p99:.2f} ms")
    finally:
        await sender.remove()
        await sender.close()
        await receiver.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", nargs="?")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=300)
    args = parser.parse_args()
    if args.url:
        asyncio.run(run(args.url, args))
        return
    own = NatsServer()
    try:
        own.start()
        asyncio.run(run(own.url().partition("?")[0], args))
    finally:
        own.stop()


if __name__ == "__main__":
    main()
