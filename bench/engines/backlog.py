"""Backlog: the rate with a million jobs waiting, beside the rate with none, in turns on one server."""

import asyncio
import json
import sys
from typing import Any

from bench.engines import load
from bench.engines.servers import Server
from bench.harness import Served, quantile

FILLERS = 2  # processes that fill
TURNS = 3
WARM = 2_000


async def backlog(server: Server, waiting: int, jobs: int) -> dict[str, Any]:
    """Return the rates, and the median of the turns' ratios."""
    plain_env, full_env = server.fresh(), server.beside()
    plain = Served("engines/app.py", **plain_env).wait_ready()
    full = Served("engines/app.py", **full_env).wait_ready()
    try:
        await load.tap(full, "pause")
        stored_per_s = await _filled(full_env["FOREBAY_BROKER"], waiting)
        server.filled(full_env)
        depth = (await load.answer(full, "/v1/queues/echo"))["depth"]
        if depth != waiting:
            raise SystemExit(f"{waiting} jobs were stored, {depth} wait")
        await load.through([plain], WARM)
        without, beside = [], []
        for _ in range(TURNS):
            without.append(await load.through([plain], jobs))
            await load.tap(full, "resume")
            beside.append(await load.through([full], jobs, standing=waiting))
            await load.tap(full, "pause")
    finally:
        for served in (plain, full):
            served.stop()
    ratios = [one / base for one, base in zip(beside, without, strict=True)]
    return {
        "backlog_waiting": waiting,
        "backlog_stored_per_s": round(stored_per_s),
        "backlog_none_per_s": quantile(without, 0.5),
        "backlog_per_s": quantile(beside, 0.5),
        "backlog_ratio": round(quantile(ratios, 0.5), 3),
    }


async def _filled(url: str, waiting: int) -> float:
    fillers = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.engines.filling", url, str(waiting // FILLERS)),
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(FILLERS)
    ]
    told = [json.loads((await filler.communicate())[0]) for filler in fillers]
    return sum(one["stored_per_s"] for one in told)
