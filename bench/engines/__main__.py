"""Forebay on PostgreSQL and Redis beside its peers: the same jobs, the same server, the same durability, one run.

    python -m bench.engines                                       # everything, about twelve minutes
    python -m bench.engines rate idle --on redis-everysec         # some parts, some servers
    python -m bench.engines rate --rows forebay saq celery --scale 0.3 --rounds 1
    python -m bench.engines rate idle --broker amqp://… --store postgresql://…      # engines that run already

The bench starts servers of its own: PostgreSQL with full fsync, Redis with an append-only file that is synced
each second, and one synced at each write. Jobs do nothing, 1 KB of JSON in, 1 KB out, the result stored.

rate      jobs a second, first submit to last result, workers running meanwhile; Forebay (`serve`, one worker)
          by NDJSON and by single calls with 64 in flight, a peer by what its users have for many jobs.
          Processor time of a job: client, workers and server. Asked of the server for a job: statements
          (PostgreSQL), reads of its sockets and commands (Redis; those of scripts count).
idle      one job at a time: submit to result, p50 and p99, what one costs then; what is spent at rest.
backlog   the rate with a million jobs waiting beside the rate with none, in turns.
apart     two API processes and four nodes beside one of each; jobs that do nothing, and jobs of 10 ms.
recovery  a node is killed (kill -9) with jobs in hand: until they run again, and whether any ends twice; peers:
          all workers killed, new ones started, what became of what ran.

Rounds of `rate` go over all rows in turn; medians are shown, and ratios are those of the rounds.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from bench.engines import rate
from bench.engines.apart import apart
from bench.engines.backlog import backlog
from bench.engines.recovery import peer_recovery, recovery
from bench.engines.report import bars, medians, table, times_of
from bench.engines.rows import FOREBAY, peers_of
from bench.engines.servers import STARTS, Elsewhere, Server
from bench.harness import machine_lock
from bench.peering import Peer, prepare

PARTS = ("rate", "idle", "backlog", "apart", "recovery")
NDJSON_JOBS = 12_000
IDLE_JOBS = 150
KILLS = 5
LATER = "runs again when its lease ends"

Figures = dict[str, Any]


class Run:
    """What was asked for, and what was found: rounds of figures by row."""

    def __init__(self, server: Server, options: argparse.Namespace) -> None:
        self.server, self.options = server, options
        self.peers = [
            peer for peer in peers_of(server.name) if options.rows is None or peer.name in options.rows
        ]
        self.ours = options.rows is None or FOREBAY in options.rows
        names = [FOREBAY] * self.ours + [peer.name for peer in self.peers]
        self.found: dict[str, list[Figures]] = {name: [{} for _ in range(options.rounds)] for name in names}

    def jobs(self, of: int) -> int:
        """Return a number of jobs in the measure that was asked for."""
        return max(50, int(of * self.options.scale))

    async def measure(self, part: str) -> None:
        """Measure one part for all rows."""
        began = time.perf_counter()
        if part == "recovery":
            await self._recovery()
        else:
            rounds = self.options.rounds if part == "rate" else 1
            for number in range(rounds):
                await self._round(part, number)
        sys.stderr.write(f"{self.server.name} {part}: {time.perf_counter() - began:.0f} s\n")

    async def _round(self, part: str, number: int) -> None:
        server, waiting = self.server, self.options.waiting
        ours: dict[str, Callable[[], Awaitable[Figures]]] = {
            "rate": lambda: rate.forebay_rate(server, self.jobs(NDJSON_JOBS)),
            "idle": lambda: rate.forebay_idle(server, self.jobs(IDLE_JOBS)),
            "backlog": lambda: backlog(server, waiting, self.jobs(NDJSON_JOBS)),
            "apart": lambda: apart(server, self.jobs(NDJSON_JOBS)),
        }
        if self.ours:
            self._take(FOREBAY, number, await ours[part]())
        for peer in self.peers:
            if part == "rate":
                self._take(peer.name, number, await rate.peer_rate(server, peer, self.jobs(peer.jobs)))
            elif part == "idle":
                self._take(peer.name, number, await rate.peer_idle(server, peer, self.jobs(IDLE_JOBS)))

    async def _recovery(self) -> None:
        if self.ours:
            self._take(FOREBAY, 0, await recovery(self.server, self.options.kills))
        if isinstance(self.server, Elsewhere):
            return
        work = [self._peer_recovery(number, peer) for number, peer in enumerate(self.peers)]
        await asyncio.gather(*work)  # their jobs sleep, and most of the time they wait

    async def _peer_recovery(self, number: int, peer: Peer) -> None:
        assert not isinstance(self.server, Elsewhere)
        found = await peer_recovery(self.server, peer, 10 + number, self.options.recovery_wait_s)
        self._take(peer.name, 0, found)

    def _take(self, row: str, number: int, figures: Figures) -> None:
        self.found[row][number] |= figures
        shown = ", ".join(f"{key} {value}" for key, value in figures.items())
        sys.stderr.write(f"{self.server.name} {row}: {shown}\n")

    def answer(self) -> Figures:
        """Print what was found and return it."""
        rows = {name: medians(rounds) for name, rounds in self.found.items()}
        deaths = {peer.name: peer.death for peer in self.peers} | {FOREBAY: LATER}
        print(table(self.server.name, self.server.synced, rows, deaths))
        lines = bars(rows)
        print("\n".join(lines))
        return {"synced": self.server.synced, "rows": rows, "times": times_of(rows), "bars": lines}


def parts_of(server: str, asked: list[str]) -> list[str]:
    """Return what is measured on a server: what does not hang on the disk once for each engine."""
    less = {"backlog", "apart", "recovery"} if server == "redis-always" else set()
    return [part for part in PARTS if part in asked and part not in less]


async def run(options: argparse.Namespace) -> Figures:
    """Measure on one server after another; SIGTERM ends it like Ctrl-C, with everything that it started."""
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    figures: Figures = {"load_average_before": round(os.getloadavg()[0], 2), "servers": {}}
    for name in options.on:
        server = started(name, options)
        try:
            one = Run(server, options)
            for part in parts_of(name, options.parts or list(PARTS)):
                await one.measure(part)
            figures["servers"][name] = one.answer()
        finally:
            server.stop()
    return figures | {"load_average_after": round(os.getloadavg()[0], 2)}


def started(name: str, options: argparse.Namespace) -> Server:
    """Return a server that runs."""
    if name in STARTS:
        return STARTS[name]()
    env = {"FOREBAY_BROKER": options.broker} | ({"FOREBAY_STORE": options.store} if options.store else {})
    return Elsewhere(name, env)


def asked_for() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--on", nargs="+", choices=list(STARTS), default=None, help="servers (all)")
    parser.add_argument("--rows", nargs="+", default=None, help="forebay and peers (all)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of jobs (1)")
    parser.add_argument("--rounds", type=int, default=3, help="of rate (3)")
    parser.add_argument("--waiting", type=int, default=1_000_000, help="jobs of the backlog (1,000,000)")
    parser.add_argument("--kills", type=int, default=KILLS, help="of a node (5)")
    parser.add_argument("--recovery-wait-s", type=float, default=90.0, help="for what peers held (90)")
    parser.add_argument("--broker", default=None, help="URL of an engine that runs already, in place of --on")
    parser.add_argument("--store", default=None, help="URL of the store beside a message broker")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    options.on = [options.broker.partition(":")[0]] if options.broker else options.on or list(STARTS)
    return options


def main() -> None:
    """Parse, measure, print."""
    options = asked_for()
    prepare(
        [
            peer
            for name in options.on
            for peer in peers_of(name)
            if options.rows is None or peer.name in options.rows
        ]
    )
    with machine_lock():
        try:
            figures = uvloop.run(run(options))
        except asyncio.CancelledError:
            raise SystemExit("ended by SIGTERM") from None
    print(json.dumps(figures))
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
