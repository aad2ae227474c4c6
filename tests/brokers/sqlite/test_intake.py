"""Groups of jobs that are alike are stored together; what is stored and answered is what each alone would leave."""

import pytest

from forebay.brokers.sqlite.intake import Intake
from forebay.brokers.sqlite.store import SqlBook
from forebay.core.job import Job
from forebay.errors import InvalidError

NOW = 1_800_000_000.0


def jobs_of(book, count, **told):
    return [
        Job(book.new_id(NOW), "echo", b"%d" % number, NOW, NOW)._replace(**told) for number in range(count)
    ]


GROUPS = {
    "alike": lambda book: [jobs_of(book, 5)],
    "one": lambda book: [jobs_of(book, 1)],
    "none": lambda book: [[]],
    "of a tenant": lambda book: [jobs_of(book, 3, tenant="acme")],
    "of two tenants": lambda book: [jobs_of(book, 2) + jobs_of(book, 2, tenant="acme")],
    "of two tasks": lambda book: [jobs_of(book, 2) + jobs_of(book, 2, task="other")],
    "with a time to live": lambda book: [jobs_of(book, 3, expires_at=NOW + 5, deadline_at=NOW + 3)],
    "some for later": lambda book: [jobs_of(book, 2) + jobs_of(book, 2, run_at=NOW + 60)],
    "with keys": lambda book: [jobs_of(book, 1, idempotency_key="k"), jobs_of(book, 1, idempotency_key="k")],
    "of one order": lambda book: [jobs_of(book, 3, ordering_key="o")],
    "that join": lambda book: [jobs_of(book, 3, fingerprint=b"f")],
    "with metadata": lambda book: [jobs_of(book, 3, metadata=b'{"a":1}')],
    "that name blobs": lambda book: [jobs_of(book, 2, payload=b'{"$blob":"%s"}' % (b"0" * 32))],
    "stored before": lambda book: [jobs := jobs_of(book, 3), jobs, jobs[1:]],
    "in another order": lambda book: [jobs_of(book, 3)[::-1]],
    "one twice": lambda book: [(jobs := jobs_of(book, 3)) + jobs[:1]],
    "the later ones first": lambda book: [jobs := jobs_of(book, 4), jobs[2:], jobs[:2]][1:],
}


def left_by(groups):
    """Return what is answered, stored, counted and granted."""
    book = SqlBook.in_memory(now=NOW)
    secret = book.shelf.mint
    secret._secret = b"\0" * 32  # so that two books give out the same ids
    receipts = [book.enqueue(jobs, now=NOW) for jobs in groups(book)]
    connection = book.shelf.connection
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    rows = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables if name != "meta"}
    depths = [book.depth(task, now=NOW) for task in ("echo", "other")]
    holding = [book.holding(tenant, now=NOW) for tenant in ("", "acme")]
    leases = [book.lease(task, limit=9, lease_s=9.0, worker="w", now=NOW) for task in ("echo", "other")]
    return receipts, rows, depths, holding, leases, book.shelf.stored_seq, book.shelf.floor


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
def test_a_group_leaves_what_each_of_its_jobs_would(groups, monkeypatch):
    together = left_by(groups)
    monkeypatch.setattr(Intake, "_enqueue_alike", lambda self, jobs: None)
    assert together == left_by(groups)


def test_jobs_that_are_alike_are_stored_together(monkeypatch):
    monkeypatch.setattr(Intake, "_enqueue_each", None)
    assert len(left_by(GROUPS["alike"])[0][0]) == 5


def test_an_id_of_another_store_is_refused_and_nothing_stays():
    book = SqlBook.in_memory(now=NOW)
    jobs = jobs_of(book, 3)
    stranger = jobs[1]._replace(id="0" * 36)
    with pytest.raises(InvalidError, match="was not given out by this store"):
        book.enqueue([jobs[0], stranger, jobs[2]], now=NOW)
    assert book.depth("echo", now=NOW).open == 0
    assert [receipt.verdict.name for receipt in book.enqueue(jobs, now=NOW)] == ["STORED"] * 3
