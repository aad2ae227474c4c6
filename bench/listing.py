"""How long a page of a listing takes in a full store: first page, deep page, and each filter, p50 and p99.

    python bench/listing.py [--jobs 1000000] [--pages 200] [--dir DIR] [--json FILE]

The store is built through the book: most jobs succeeded, a few are dead, of a rare task, of a rare tenant
or with rare metadata, one is as old as the store and still waits, and the newest 5 % wait. With --dir the
store is kept there and used again.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from forebay.brokers.sqlite import schema
from forebay.brokers.sqlite.store import SqlBook
from forebay.core import settle
from forebay.core.job import Job, JobError, Query
from forebay.core.lifecycle import FINAL, WAITING, State

BATCH = 1_000
RARE = 20_000  # one job in so many
PAYLOAD = b'{"text":"' + b"x" * 500 + b'"}'
OUTPUT = b'"' + b"y" * 200 + b'"'
LIMIT = 50
T0 = 1_700_000_000.0
POLICY = settle.SettlePolicy()


def main(argv: Sequence[str] | None = None) -> None:
    """Build the store, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--pages", type=int, default=200)
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args(argv)
    base = args.dir or Path(tempfile.mkdtemp(prefix="forebay-bench-"))
    try:
        figures = measure(base, args.jobs, args.pages)
    finally:
        if args.dir is None:
            shutil.rmtree(base, ignore_errors=True)
    print(
        f"{'page of 50':<28} {'p50 ms':>8} {'p99 ms':>8} {'cpu ms':>8} {'rows':>7} {'pages to the end':>17}"
    )
    for name, (p50, p99, cpu, rows, pages) in figures.items():
        print(f"{name:<28} {p50:>8.2f} {p99:>8.2f} {cpu:>8.2f} {rows:>7} {pages or '':>17}")
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")


def measure(base: Path, jobs: int, pages: int) -> dict[str, tuple[float, float, float, int, int | None]]:
    """Return p50, p99 and mean processor time of a page, records seen, and pages to the end by listing."""
    base.mkdir(parents=True, exist_ok=True)
    path = base / schema.FILE_NAME
    built = path.exists()
    book = SqlBook(schema.open_file(path), retention_s=1e9, now=T0)
    if not built:
        began = time.process_time()
        build(book, jobs)
        print(f"built in {(time.process_time() - began) / jobs * 1e6:.1f} us of processor time a job")
    listings = {
        "first page": Query(),
        "deep pages": Query(after=_middle(book, jobs)),
        "by task": Query(task="busy"),
        "by rare task": Query(task="rare"),
        "by rare tenant": Query(tenant="rare"),
        "by status COMPLETED": Query(states=frozenset({State.SUCCEEDED})),
        "by status FAILED (rare)": Query(states=frozenset({State.DEAD})),
        "by status PENDING": Query(states=WAITING),
        "by status PROCESSING (none)": Query(states=frozenset({State.RUNNING})),
        "by every final status": Query(states=FINAL),
        "rare task and FAILED": Query(task="rare", states=frozenset({State.DEAD})),
        "by rare metadata": Query(metadata=(("batch", "rare"),)),
    }
    return {name: _walk(book, query._replace(limit=LIMIT), pages) for name, query in listings.items()}


def build(book: SqlBook, jobs: int) -> None:
    """Fill the store."""
    shelf = book.shelf
    shelf.connection.execute("PRAGMA synchronous=OFF").fetchall()
    waiting_from = jobs - jobs // 20
    for begin in range(0, jobs, BATCH):
        now = T0 + begin / BATCH
        made = [_job(book, begin + at, now) for at in range(BATCH)]
        book.enqueue(made, now=now)
        if begin >= waiting_from:
            continue
        for task in ("busy", "rare"):
            steps = []
            for at, lease in enumerate(book.lease(task, limit=BATCH, lease_s=30.0, worker="w", now=now)):
                if task == "busy" and (begin + at) % RARE == 7:
                    error = JobError("broke", "no")
                    step = settle.fail(lease, error=error, policy=POLICY, now=now, jitter=0.5, permanent=True)
                else:
                    step = settle.complete(lease, output=OUTPUT, now=now)
                steps.append(step)
            assert all(book.commit(steps, now=now))
    shelf.connection.execute("PRAGMA synchronous=FULL").fetchall()
    shelf.connection.wal_checkpoint()


def _job(book: SqlBook, number: int, now: float) -> Job:
    task = "old" if number == 3 else "rare" if number % RARE == 5 else "busy"
    tenant = "rare" if number % RARE == 11 else "acme"
    batch = "rare" if number % RARE == 13 else "usual"
    text = json.dumps({"batch": batch, "number": number}).encode()
    new_id = book.new_id(now)
    return Job(new_id, task, PAYLOAD, now, now, tenant=tenant, metadata=text, body_hash=b"0" * 16)


def _middle(book: SqlBook, jobs: int) -> str:
    seq, ms = next(
        iter(
            book.shelf.connection.execute(
                "SELECT seq, ms FROM jobs WHERE seq >= ? ORDER BY seq LIMIT 1", (jobs // 3,)
            )
        )
    )
    return book.shelf.mint.text(ms, seq)


def _walk(book: SqlBook, query: Query, pages: int) -> tuple[float, float, float, int, int | None]:
    now = T0 + 1e6
    times: list[float] = []
    rows, cpu = 0, time.process_time()
    ended = None
    for number in range(1, pages + 1):
        began = time.perf_counter()
        page = book.find(query, now=now)
        times.append((time.perf_counter() - began) * 1e3)
        rows += len(page.records)
        query = query._replace(after=page.next_after)
        if page.next_after is None:
            ended = number
            break
    cpu = (time.process_time() - cpu) / len(times) * 1e3
    times.sort()
    return (
        statistics.median(times),
        times[int(len(times) * 0.99)] if len(times) > 1 else times[0],
        cpu,
        rows,
        ended,
    )


if __name__ == "__main__":
    main()
