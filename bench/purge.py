"""What a purge costs beside a million jobs that are kept: a turn that finds nothing, and one that removes.

    python bench/purge.py [--jobs 1000000] [--gone 100000] [--tenant a]

Two stores: one of dead letters that are kept for a month, one of results of a task with a retention of its
own. In both so many other jobs are past their retention.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from forebay.brokers.sqlite import schema
from forebay.brokers.sqlite.store import SqlBook
from forebay.core import settle
from forebay.core.job import Job, JobError
from forebay.core.retention import Retention

BATCH = 1_000
DAY = 86_400.0
MONTH = 30 * DAY
T0 = 1_700_000_000.0
PAYLOAD = b'{"text":"' + b"x" * 500 + b'"}'
POLICY = settle.SettlePolicy()
BROKE = JobError("broke", "no")


def main() -> None:
    """Build, purge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--gone", type=int, default=100_000)
    parser.add_argument(
        "--tenant", default="", help="whose the jobs are: with a name, each that goes is remembered"
    )
    args = parser.parse_args()
    for what, dead in (("dead letters kept", True), ("results of a task kept", False)):
        base = Path(tempfile.mkdtemp(prefix="forebay-bench-"))
        try:
            report(what, base, args, dead=dead)
        finally:
            shutil.rmtree(base, ignore_errors=True)


def report(what: str, base: Path, args: argparse.Namespace, *, dead: bool) -> None:
    """Measure one store."""
    jobs, gone, tenant = args.jobs, args.gone, args.tenant
    book = SqlBook(schema.open_file(base / schema.FILE_NAME), dead_s=MONTH, now=T0)
    if not dead:
        book.set_retention({"long": Retention(MONTH, MONTH)})
    book.shelf.connection.execute("PRAGMA synchronous=OFF").fetchall()
    fill(book, "long", jobs, tenant, dead=dead)
    fill(book, "brief", gone, tenant, dead=False)
    book.shelf.connection.execute("PRAGMA synchronous=FULL").fetchall()
    book.shelf.connection.wal_checkpoint()
    now = T0 + 10 * DAY
    turns: list[float] = []
    while not turns or book.shelf.past.more:
        turns.append(turn(book, now))
    nothing = sorted(turn(book, now) for _ in range(21))
    assert book.shelf.row("SELECT count(*) FROM jobs") == (jobs,)
    print(f"{what}: {jobs:,}; removed: {gone:,}")
    print(
        f"  the first search: {len(turns)} turns, longest {max(turns):.1f} ms, all {sum(turns) / 1e3:.2f} s"
    )
    print(f"  a turn that finds nothing: {nothing[10]:.3f} ms")


def turn(book: SqlBook, now: float) -> float:
    """Return the milliseconds of one bounded turn."""
    began = time.perf_counter()
    book.purge_part(None, limit=BATCH, now=now)
    return (time.perf_counter() - began) * 1e3


def fill(book: SqlBook, task: str, count: int, tenant: str, *, dead: bool) -> None:
    """Bring so many jobs to their end, a batch a second."""
    for begin in range(0, count, BATCH):
        now = T0 + begin / BATCH
        jobs = [Job(book.new_id(now), task, PAYLOAD, now, now, tenant=tenant) for _ in range(BATCH)]
        book.enqueue(jobs, now=now)
        leases = book.lease(task, limit=BATCH, lease_s=30.0, worker="w", now=now)
        if dead:
            steps = [
                settle.fail(lease, error=BROKE, policy=POLICY, now=now, jitter=0.5, permanent=True)
                for lease in leases
            ]
        else:
            steps = [settle.complete(lease, output=b'"ok"', now=now) for lease in leases]
        assert all(book.commit(steps, now=now))


if __name__ == "__main__":
    main()
