"""Apart: two API processes and four worker nodes beside one of each, by jobs that do nothing and by jobs of 10 ms."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from bench.engines import load
from bench.engines.servers import Server
from bench.harness import Served

ONE, MANY = (1, 1), (2, 4)  # API processes, nodes
HOLD_S = 0.01  # of a job that waits, as for a model elsewhere: it takes no processor
NODES_MAX_S = 30.0
WARM = 1_000


@contextlib.contextmanager
def fleet(
    env: dict[str, str], apis: int, nodes: int, workers: int = 1
) -> Iterator[tuple[list[Served], list[Served]]]:
    """Yield so many API processes and nodes on one store, all of them ready."""
    with contextlib.ExitStack() as stack:

        def begun(verb: str) -> Served:
            served = Served("engines/app.py", verb=verb, workers=workers, **env)
            stack.callback(served.stop)
            return served

        doors, hands = [begun("api") for _ in range(apis)], [begun("work") for _ in range(nodes)]
        for served in [*doors, *hands]:
            served.wait_ready()
        seen(doors[0], nodes)
        yield doors, hands


def seen(door: Served, nodes: int) -> None:
    """Return when an API process knows so many nodes."""
    late = time.perf_counter() + NODES_MAX_S
    while len({one["node"] for one in door.get("/v1/workers")["items"]}) != nodes:
        if time.perf_counter() > late:
            raise SystemExit(f"there are not {nodes} nodes")
        time.sleep(0.05)


async def apart(server: Server, jobs: int) -> dict[str, Any]:
    """Return the rates of both, and how many times the one is the other."""
    figures: dict[str, Any] = {}
    for name, (apis, nodes) in (("one", ONE), ("many", MANY)):
        with fleet(server.fresh(), apis, nodes) as (doors, _):
            await load.through(doors, WARM)
            figures[f"apart_{name}_noop_per_s"] = await load.through(doors, jobs)
            held = 250 * nodes
            figures[f"apart_{name}_held_per_s"] = await load.through(doors, held, hold_s=HOLD_S)
    for kind in ("noop", "held"):
        times = figures[f"apart_many_{kind}_per_s"] / figures[f"apart_one_{kind}_per_s"]
        figures[f"apart_{kind}_times"] = round(times, 2)
    return figures
