"""Whose the removed jobs were: bounded, the oldest first, kept over a start, and naming nobody."""

from pathlib import Path

import pytest

from forebay.brokers.sqlite import schema, tombstones
from forebay.brokers.sqlite.store import SqlBook
from forebay.core.job import Job

NOW = 1_000.0


def removed(book: SqlBook, count: int = 1, tenant: str = "somebody") -> list[str]:
    """Store, cancel and purge jobs; return their ids."""
    jobs = [Job(book.new_id(NOW), "t", b"{}", NOW, NOW, tenant=tenant) for _ in range(count)]
    ids = [job.id for job in jobs]
    book.enqueue(jobs, now=NOW)
    book.cancel(ids, now=NOW)
    assert book.purge(ids, limit=count, now=NOW) == count
    return ids


def known(book: SqlBook, ids: list[str], tenant: str = "somebody") -> list[bool]:
    return [book.was_purged(job_id, tenant=tenant, now=NOW) for job_id in ids]


def rows(book: SqlBook) -> int:
    sql = "SELECT (SELECT count(*) FROM tombstones_0) + (SELECT count(*) FROM tombstones_1)"
    return int(book.shelf.connection.execute(sql).get)


def test_the_oldest_are_forgotten_in_the_order_of_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tombstones, "KEPT_MAX", 100)
    book = SqlBook.in_memory(now=NOW)
    ids: list[str] = []
    for _ in range(40):
        ids += removed(book, 10)
        assert rows(book) <= 100
        assert all(known(book, ids[-50:]))
    assert not any(known(book, ids[:-100]))
    assert all(book.was_purged(job_id, now=NOW) for job_id in ids), "who sees all is told of every one"


def test_a_start_goes_on_where_the_store_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tombstones, "KEPT_MAX", 100)
    book = SqlBook.in_memory(now=NOW)
    ids: list[str] = []
    for _ in range(20):
        ids += removed(book, 10)
        book = SqlBook(book.shelf.connection, now=NOW)
        assert rows(book) <= 100
        assert all(known(book, ids[-50:]))


def test_a_step_that_fails_forgets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tombstones, "KEPT_MAX", 40)
    book = SqlBook.in_memory(now=NOW)
    ids = removed(book, 15) + removed(book, 15)
    (job,) = [Job(book.new_id(NOW), "t", b"{}", NOW, NOW, tenant="somebody")]
    book.enqueue([job], now=NOW)
    book.cancel([job.id], now=NOW)
    with monkeypatch.context() as broken:
        broken.setattr(book.shelf.spans, "purged", lambda *_: 1 / 0)
        for _ in range(40):  # enough to turn the tables many times, if anything of it stayed
            with pytest.raises(ZeroDivisionError):
                book.purge([job.id], limit=1, now=NOW)
    assert all(known(book, ids)) and not any(known(book, [job.id]))
    book.purge([job.id], limit=1, now=NOW)
    assert all(known(book, [*ids[15:], job.id]))


def test_jobs_of_no_tenant_cost_no_row() -> None:
    book = SqlBook.in_memory(now=NOW)
    ids = removed(book, 10, tenant="")
    assert rows(book) == 0
    assert all(book.was_purged(job_id, now=NOW) for job_id in ids)


def test_the_file_does_not_name_the_tenant(tmp_path: Path) -> None:
    book = SqlBook(schema.open_file(tmp_path / schema.FILE_NAME), now=NOW)
    ids = removed(book, 3, tenant="somebody-5f1a")
    schema.scrub(book.shelf.connection)
    book.shelf.spans.forget()
    assert all(known(book, ids, "somebody-5f1a"))
    tags = book.shelf.connection.execute("SELECT tag FROM tombstones_0").fetchall()
    assert len(set(tags)) == 3, "nor which of them had the same one"
    book.shelf.connection.close()
    for path in tmp_path.iterdir():
        assert b"somebody-5f1a" not in path.read_bytes()


def test_a_store_of_the_schema_before_learns_to_remember(tmp_path: Path) -> None:
    path = tmp_path / schema.FILE_NAME
    connection = schema.open_file(path)
    connection.execute("DROP TABLE tombstones_0; DROP TABLE tombstones_1; PRAGMA user_version=3")
    connection.close()
    book = SqlBook(schema.open_file(path), now=NOW)
    assert known(book, removed(book)) == [True]
