"""Rate and idle: jobs a second through each row, what one job costs and asks; one job at a time, and none."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.engines import load
from bench.engines.rows import driven
from bench.engines.servers import Asked, Server, cpu_s, spent_s
from bench.harness import Served, quantile
from bench.peering import Peer

Figures = dict[str, Any]
WARM = 2_000  # jobs of Forebay that are not counted; peers' drivers warm up by themselves
SINGLE_SHARE = 0.4  # of the jobs go by single calls
REST_S = 3.0
IDLE_GAP_S = 0.01


class Spending:
    """What processes spent and a server was asked while something went on."""

    def __init__(self, server: Server, pids: list[int]) -> None:
        self._server, self._pids = server, [*pids, *server.pids()]
        self._asked, self._own = server.asked(), time.process_time()
        self._before = cpu_s(self._pids)

    def per_job(self, jobs: int, *, mine: bool) -> Figures:
        """Return it for one job; `mine`: this process was the client, and its processor time counts too."""
        own_s = (time.process_time() - self._own) * mine
        spent = spent_s(self._before, cpu_s(self._pids)) + own_s
        found: Figures = {"cpu_us": round(spent / jobs * 1e6, 1)}
        return found | {f"{name}_per_job": round(count / jobs, 3) for name, count in self._since().items()}

    def per_second(self, seconds: float) -> Figures:
        """Return it for one second."""
        spent = spent_s(self._before, cpu_s(self._pids))
        found: Figures = {"rest_cpu_percent": round(spent / seconds * 100, 2)}
        return found | {
            f"rest_{name}_per_s": round(count / seconds, 2) for name, count in self._since().items()
        }

    def _since(self) -> Asked:
        return {name: count - self._asked[name] for name, count in self._server.asked().items()}


async def forebay_rate(server: Server, jobs: int) -> Figures:
    """Forebay as `serve` with one worker: by NDJSON, and by single calls."""
    served = Served(**server.fresh()).wait_ready()
    try:
        await load.through([served], min(WARM, jobs))
        spending = Spending(server, [served.process.pid])
        figures: Figures = {"through_per_s": await load.through([served], jobs)}
        figures |= spending.per_job(jobs, mine=True)
        singles = max(200, int(jobs * SINGLE_SHARE))
        spending = Spending(server, [served.process.pid])
        figures["single_per_s"] = await load.singly([served], singles)
        figures |= {f"single_{name}": value for name, value in spending.per_job(singles, mine=True).items()}
    finally:
        served.stop()
    return figures


async def peer_rate(server: Server, peer: Peer, jobs: int) -> Figures:
    """A peer with two worker processes."""
    async with driven(peer, server.fresh()) as driver:
        await driver.ask("ready")
        driver.start_workers()
        await driver.ask("idle", 1, 0.0)  # warm
        spending = Spending(server, driver.pids())
        done = await driver.ask("through", jobs)
        figures = spending.per_job(jobs, mine=False)
    return {"through_per_s": done["jobs"] / done["took_s"], **figures, "missing": done["missing"]}


async def forebay_idle(server: Server, jobs: int) -> Figures:
    """One job at a time over HTTP, and what is spent when there is none."""
    served = Served(**server.fresh()).wait_ready()
    try:
        return await _idle(
            server,
            [served.process.pid],
            jobs,
            lambda count: load.one_by_one(served, count, IDLE_GAP_S),
            [served.process.pid],
        )
    finally:
        served.stop()


async def peer_idle(server: Server, peer: Peer, jobs: int) -> Figures:
    """The same of a peer; its driver looks for the result every millisecond."""
    async with driven(peer, server.fresh()) as driver:
        await driver.ask("ready")
        driver.start_workers()

        async def ask(count: int) -> list[float]:
            return list((await driver.ask("idle", count, IDLE_GAP_S))["times_ms"])

        return await _idle(server, driver.pids(), jobs, ask, driver.pids(workers_alone=True))


async def _idle(
    server: Server,
    pids: list[int],
    jobs: int,
    ask: Callable[[int], Awaitable[list[float]]],
    workers: list[int],
) -> Figures:
    await ask(20)
    spending = Spending(server, pids)
    times = await ask(jobs)
    figures = {f"alone_{name}": value for name, value in spending.per_job(jobs, mine=False).items()}
    figures |= {"idle_p50_ms": quantile(times, 0.5), "idle_p99_ms": quantile(times, 0.99)}
    await asyncio.sleep(0.5)
    spending, began = Spending(server, workers), time.perf_counter()
    await asyncio.sleep(REST_S)
    return figures | spending.per_second(time.perf_counter() - began)
