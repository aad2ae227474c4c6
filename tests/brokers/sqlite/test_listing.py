"""Listings of a full store: what a filter leaves out is not looked at."""

import apsw
import pytest

from forebay.brokers.sqlite.reads import Reads
from forebay.brokers.sqlite.rows import Row
from forebay.brokers.sqlite.store import SqlBook
from forebay.core import settle
from forebay.core.job import Job, JobError, Query
from forebay.core.lifecycle import WAITING, State

NOW = 1_000.0
JOBS = 20_000
POLICY = settle.SettlePolicy()


@pytest.fixture(scope="module")
def book() -> SqlBook:
    """One old job of another task and tenant that waits, one dead one, and many that succeeded."""
    book = SqlBook.in_memory(now=NOW)
    old = [Job(book.new_id(NOW), "rare", b"{}", NOW, NOW, tenant="rare")]
    book.enqueue([*old, Job(book.new_id(NOW), "t", b"{}", NOW, NOW)], now=NOW)
    (lease,) = book.lease("t", limit=1, lease_s=9.0, worker="w", now=NOW)
    error = JobError("broke", "no")
    book.commit(
        [settle.fail(lease, error=error, policy=POLICY, now=NOW, jitter=0.0, permanent=True)], now=NOW
    )
    for _ in range(0, JOBS, 1000):
        book.enqueue([Job(book.new_id(NOW), "t", b"{}", NOW, NOW) for _ in range(1000)], now=NOW)
        leases = book.lease("t", limit=1000, lease_s=9.0, worker="w", now=NOW)
        book.commit([settle.complete(lease, output=b"1", now=NOW) for lease in leases], now=NOW)
    return book


@pytest.mark.parametrize(
    "query",
    [
        Query(task="rare"),
        Query(tenant="rare"),
        Query(task="rare", tenant="rare"),
        Query(states=frozenset({State.DEAD})),
        Query(states=WAITING),
        Query(task="rare", states=WAITING),
    ],
)
def test_what_is_rare_and_old_is_on_the_first_page_which_is_the_last(book: SqlBook, query: Query) -> None:
    page = book.find(query._replace(window_max=2_000), now=NOW)
    assert (len(page.records), page.next_after) == (1, None)


def test_nothing_is_told_without_a_search(book: SqlBook) -> None:
    for query in (Query(states=frozenset({State.RUNNING})), Query(task="never"), Query(states=frozenset())):
        assert book.find(query._replace(window_max=10), now=NOW) == ((), None)


def test_a_block_of_many_tenants_is_noted_as_one_of_all(book: SqlBook) -> None:
    crowd = SqlBook.in_memory(now=NOW)
    crowd.enqueue([Job(crowd.new_id(NOW), "t", b"{}", NOW, NOW, tenant=f"n{n}") for n in range(500)], now=NOW)
    assert crowd.shelf.row("SELECT count(*) FROM spans") == (1 + 32 + 1,)
    for tenant in ("n0", "n499"):
        (record,) = crowd.find(Query(tenant=tenant), now=NOW).records
        assert record.job.tenant == tenant


def filled(book: SqlBook, blocks: int, *, dead: int = -1) -> list[Job]:
    """Bring so many blocks of jobs to their end, the one at `dead` to a bad one; return all."""
    jobs = [Job(book.new_id(NOW), "t", b"{}", NOW, NOW) for _ in range(1024 * blocks)]
    book.enqueue(jobs, now=NOW)
    leases = book.lease("t", limit=len(jobs), lease_s=9.0, worker="w", now=NOW)
    ends = [settle.complete(lease, output=b"1", now=NOW) for lease in leases]
    if dead >= 0:
        error = JobError("broke", "no")
        ends[dead] = settle.fail(
            leases[dead], error=error, policy=POLICY, now=NOW, jitter=0.0, permanent=True
        )
    book.commit(ends, now=NOW)
    return jobs


def test_spans_of_what_was_purged_go_too_and_come_back_with_an_old_id() -> None:
    book = SqlBook.in_memory(now=NOW)
    jobs = filled(book, 5)
    assert book.purge([job.id for job in jobs[1024:1536]], limit=1, now=NOW) == 512
    assert book.shelf.row("SELECT count(DISTINCT block) FROM spans") == (6,)
    book.purge(limit=100_000, now=NOW + 100_000.0)
    assert book.shelf.row("SELECT count(DISTINCT block) FROM spans") == (1,), "the newest is being filled"
    book.enqueue([jobs[7]], now=NOW + 100_000.0)
    (again,) = book.find(Query(limit=1, task="t"), now=NOW + 100_000.0).records
    assert again.job.id == jobs[7].id


def test_a_dead_letter_that_is_kept_longer_keeps_no_spans_but_its_own() -> None:
    book = SqlBook.in_memory(now=NOW, dead_s=1_000_000.0)
    jobs = filled(book, 5, dead=7)
    book.purge(limit=100_000, now=NOW + 100_000.0)
    assert book.shelf.row("SELECT count(DISTINCT block) FROM spans") == (2,)
    (letter,) = book.find(Query(task="t", window_max=5), now=NOW + 100_000.0).records
    assert letter.job.id == jobs[7].id


def test_what_does_not_match_never_becomes_a_row_of_pythons(
    book: SqlBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Row] = []
    matches = Reads._matches
    monkeypatch.setattr(
        Reads, "_matches", lambda self, row, *rest: seen.append(row) or matches(self, row, *rest)
    )
    for query in (
        Query(metadata=(("batch", "rare"),)),
        Query(tenant="rare"),
        Query(task="t", tenant="rare"),
        Query(states=frozenset({State.SUCCEEDED, State.RUNNING}), tenant="rare"),
    ):
        walk(book, query)
    assert [row[0] for row in seen] == [1], "the one job of the rare tenant"


def test_metadata_with_escapes_is_read_as_it_was_meant() -> None:
    book = SqlBook.in_memory(now=NOW)
    texts = [
        b'{"a":"\\u0078yz"}',
        b'{"a":"xyz"}',
        b'{"\\u0061":"xyz"}',
        b'{"b":"xyz","c":"a"}',
        b'{"a":"xy\\"z"}',
        b"",
    ]
    jobs = [Job(book.new_id(NOW), "t", b"{}", NOW, NOW, metadata=text) for text in texts]
    book.enqueue(jobs, now=NOW)
    assert walk(book, Query(metadata=(("a", "xyz"),))) == [job.id for job in jobs[2::-1]]
    assert walk(book, Query(metadata=(("a", 'xy"z'),))) == [jobs[4].id]


def test_a_page_that_ends_early_has_a_cursor_that_is_no_job(book: SqlBook) -> None:
    page = book.find(Query(metadata=(("batch", "rare"),), window_max=1_000), now=NOW)
    assert page.records == () and page.next_after is not None
    assert book.get(page.next_after, now=NOW) is None


def test_a_statement_of_several_tables_is_planned_once(book: SqlBook) -> None:
    assert book.shelf.connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1


def walk(book: SqlBook, query: Query) -> list[str]:
    """Return the ids of all pages."""
    ids: list[str] = []
    after = None
    for _ in range(1_000):
        page = book.find(query._replace(after=after), now=NOW)
        ids += [record.job.id for record in page.records]
        after = page.next_after
        if after is None:
            return ids
    raise AssertionError("a listing without end")
