"""Two trees in turns: processor time of a job, and jobs a second, of this one beside a base.

    git worktree add ../base COMMIT
    python bench/turns.py ../base                    # both measures, nine turns each
    python bench/turns.py ../base single --turns 15

Both servers stay up; only one of them has work at a time, and which goes first changes with each turn. The
processor time is what the kernel counted for each thread until the last result was stored, so it is steadier
than a rate where other work shares the machine. A ratio is this tree's by the base's, the median of the turns';
beside it stands the ratio of the least that either tree took in any turn, which the others disturbed least.
"""

import argparse
import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import uvloop
from harness import Served, machine_lock, quantile, show
from jobs import ndjson, single

COUNT = 20_000  # jobs of one turn by NDJSON, unless told
PARTS = ("ndjson", "single")
SECONDS = 2  # of one turn by single calls


class Spent(NamedTuple):
    """Microseconds of the processor for one job, and jobs a second."""

    loop: float
    threads: float
    child: float
    rate: float

    @property
    def server(self) -> float:
        """Of the server's process."""
        return self.loop + self.threads


def busy_ns(pid: int) -> tuple[int, int]:
    """Return what the first thread of a process and its other threads have run so far."""
    first = others = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            spent = int((task / "schedstat").read_text().split()[0])
            if task.name == str(pid):
                first += spent
            else:
                others += spent
    return first, others


async def turn(served: Served, name: str, count: int) -> Spent:
    """Return what a job costs one tree now."""
    children = await asyncio.to_thread(served.children)

    def read() -> tuple[int, int, int]:
        return (*busy_ns(served.process.pid), sum(sum(busy_ns(child)) for child in children))

    before = read()
    began = time.perf_counter()
    rate = await (ndjson(served, count) if name == "ndjson" else single(served, SECONDS))
    jobs = rate * (time.perf_counter() - began)
    after = read()
    loop, threads, child = ((now - then) / 1000 / jobs for now, then in zip(after, before, strict=True))
    return Spent(loop, threads, child, rate)


async def compare(name: str, head: Served, base: Served, turns: int, count: int) -> dict[str, Any]:
    """Return the medians of both trees and of the turns' ratios."""
    for served in (head, base):
        await turn(served, name, count)
    pairs: list[tuple[Spent, Spent]] = []
    for number in range(turns):
        if number % 2:
            of_base, of_head = await turn(base, name, count), await turn(head, name, count)
        else:
            of_head, of_base = await turn(head, name, count), await turn(base, name, count)
        pairs.append((of_head, of_base))

    def median(value: Callable[[Spent, Spent], float]) -> float:
        return quantile([value(head, base) for head, base in pairs], 0.5)

    figures: dict[str, Any] = {}
    for what in ("loop", "threads", "server", "child", "rate"):
        figures[f"{name}_{what}"] = (
            round(median(lambda head, _, what=what: getattr(head, what)), 1),
            round(median(lambda _, base, what=what: getattr(base, what)), 1),
            round(median(lambda head, base, what=what: getattr(head, what) / getattr(base, what)), 3),
        )
    ratios = [head.server / base.server for head, base in pairs]
    figures[f"{name}_server_quartiles"] = (round(quantile(ratios, 0.25), 3), round(quantile(ratios, 0.75), 3))
    best = [min(pair[tree].server for pair in pairs) for tree in (0, 1)]
    figures[f"{name}_server_least"] = (round(best[0], 1), round(best[1], 1), round(best[0] / best[1], 3))
    return figures


async def run(base_tree: Path, which: list[str], turns: int, count: int) -> dict[str, Any]:
    """Serve both trees and let them take turns."""
    figures: dict[str, Any] = {}
    here = Path(__file__).resolve().parent.parent
    for name in which:
        head, base = (Served(PYTHONPATH=str(tree / "src")).wait_ready() for tree in (here, base_tree))
        try:
            figures |= await compare(name, head, base, turns, count)
        finally:
            head.stop()
            base.stop()
    return figures


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("base", type=Path)
    parser.add_argument("which", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--count", type=int, default=COUNT, help="jobs of one turn by NDJSON")
    parser.add_argument("--json")
    options = parser.parse_args()
    with machine_lock():
        which = options.which or list(PARTS)
        figures = uvloop.run(run(options.base.resolve(), which, options.turns, options.count))
    rows = [
        (key, f"{value[0]:,} {value[1]:,}", f"{value[2]}" if len(value) > 2 else "")
        for key, value in figures.items()
    ]
    show(
        "This tree, the base, the ratio (µs of processor for a job; rates in jobs/s)",
        rows,
        figures,
        options.json,
    )


if __name__ == "__main__":
    main()
