"""Purges of a store where some jobs are kept longer: nothing is looked at twice, nothing is left behind."""

import pytest

from forebay.brokers.sqlite import past
from forebay.brokers.sqlite.store import SqlBook
from forebay.core import settle
from forebay.core.job import Job, JobError
from forebay.core.retention import Retention

NOW = 1_000.0
DAY = 86_400.0
POLICY = settle.SettlePolicy()


def ended(
    book: SqlBook, count: int, *, task: str = "t", now: float = NOW, at: float | None = None
) -> list[str]:
    """Bring jobs to their results; return their ids."""
    jobs = [Job(book.new_id(now), task, b"{}", now, now) for _ in range(count)]
    book.enqueue(jobs, now=now)
    leases = book.lease(task, limit=count, lease_s=9.0, worker="w", now=now)
    at = now if at is None else at
    assert all(book.commit([settle.complete(lease, output=b"1", now=at) for lease in leases], now=now))
    return [job.id for job in jobs]


def dead(book: SqlBook, count: int) -> None:
    """Bring jobs to the dead letters."""
    book.enqueue([Job(book.new_id(NOW), "t", b"{}", NOW, NOW) for _ in range(count)], now=NOW)
    error = JobError("broke", "no")
    ends = [
        settle.fail(lease, error=error, policy=POLICY, now=NOW, jitter=0.0, permanent=True)
        for lease in book.lease("t", limit=count, lease_s=9.0, worker="w", now=NOW)
    ]
    assert all(book.commit(ends, now=NOW))


def looked_at(book: SqlBook, now: float) -> int:
    """Return how many rows a purge that removes nothing steps over, by what SQLite counts."""
    steps = 0

    def step() -> bool:
        nonlocal steps
        steps += 1
        return False

    book.shelf.connection.set_progress_handler(step, 10)
    assert book.purge(limit=100, now=now) == 0
    book.shelf.connection.set_progress_handler(None)
    return steps


def test_dead_letters_that_are_kept_are_not_looked_at() -> None:
    few, many = (SqlBook.in_memory(dead_s=30 * DAY, now=NOW) for _ in range(2))
    dead(few, 10)
    dead(many, 5_000)
    assert looked_at(many, NOW + 2 * DAY) <= looked_at(few, NOW + 2 * DAY) + 5


def test_jobs_of_a_task_that_are_kept_are_looked_at_once() -> None:
    book = SqlBook.in_memory(now=NOW)
    book.set_retention({"long": Retention(30 * DAY, 30 * DAY)})
    for second in range(100):
        ended(book, 50, task="long", now=NOW + second)
    first = looked_at(book, NOW + 2 * DAY)
    assert looked_at(book, NOW + 2 * DAY) < first / 20


def test_a_search_that_ends_at_its_bound_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "LOOKED_MAX", 7)
    book = SqlBook.in_memory(now=NOW)
    book.set_retention({"long": Retention(30 * DAY, 30 * DAY)})
    ended(book, 100, task="long")
    gone = ended(book, 3, now=NOW + 1)
    assert book.purge_part(None, limit=100, now=NOW + 2 * DAY) == 0 and book.shelf.past.more
    assert book.purge(limit=100, now=NOW + 2 * DAY) == 3
    assert [book.get(job_id, now=NOW) for job_id in gone] == [None] * 3


def test_a_result_that_lands_behind_what_was_looked_at_is_found() -> None:
    book = SqlBook.in_memory(now=NOW)
    book.set_retention({"long": Retention(30 * DAY, 30 * DAY)})
    ended(book, 2, task="long", now=NOW + 50)
    assert book.purge(limit=100, now=NOW + 2 * DAY) == 0
    ended(book, 1, now=NOW + 2 * DAY, at=NOW + 10)  # the disk was full for a long time
    assert book.purge(limit=100, now=NOW + 2 * DAY) == 1


def test_a_purge_that_fails_leaves_nothing_unfound() -> None:
    book = SqlBook.in_memory(now=NOW)
    book.set_retention({"long": Retention(30 * DAY, 30 * DAY)})
    ended(book, 3)
    book.shelf.begin()
    assert book.purge(limit=100, now=NOW + 2 * DAY) == 3
    book.shelf.rollback()
    assert book.purge(limit=100, now=NOW + 2 * DAY) == 3
