"""Ten thousand tenants, and many ordering keys: what a look at the queue costs goes by what changed, not by how many lines there are."""

import pytest

from forebay.brokers.sqlite import endings
from forebay.brokers.sqlite.lane import Lane
from forebay.brokers.sqlite.store import SqlBook
from forebay.core import settle
from forebay.core.fairness import Share
from forebay.core.job import Job, Line
from forebay.core.ledger import Ledger

NOW = 1_000.0
TENANTS = 10_000
TTL_S = 100.0


class Looks:
    """How often a lane was looked at, by verb."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for verb in ("oldest_at", "pull_due", "lowest_seq", "seqs", "newest"):
            monkeypatch.setattr(Lane, verb, self._counting(getattr(Lane, verb)))

    def _counting(self, verb):
        def counted(*args):
            self.count += 1
            return verb(*args)

        return counted

    def of(self, call):
        """Return what a call answers and how many looks it took."""
        before = self.count
        return call(), self.count - before


def a_job(book: SqlBook, tenant: str, *, now: float = NOW, ttl_s: float = TTL_S, priority: int = 5) -> Job:
    return Job(book.new_id(now), "t", b"{}", now, now, priority, tenant=tenant, expires_at=now + ttl_s)


def crowded(tenants: int = TENANTS) -> SqlBook:
    """A line for each tenant; the jobs of n0 end first."""
    book = SqlBook.in_memory(now=NOW)
    jobs = [a_job(book, f"n{n}", ttl_s=TTL_S + n) for n in range(tenants)]
    book.enqueue(jobs, now=NOW)
    return book


def test_a_depth_looks_at_the_lines_that_changed(monkeypatch):
    book, looks = crowded(), Looks(monkeypatch)
    depth, _ = looks.of(lambda: book.depth("t", now=NOW))
    assert (depth.queued, depth.lines) == (TENANTS, (Line(5, TENANTS, NOW),))
    assert looks.of(lambda: book.depth("t", now=NOW)) == (depth, 0)
    book.enqueue([a_job(book, "n7", priority=2), a_job(book, "n8")], now=NOW + 1)
    depth, took = looks.of(lambda: book.depth("t", now=NOW + 1))
    assert depth.lines == (Line(2, 1, NOW), Line(5, TENANTS + 1, NOW)) and took <= 3
    (lease,) = book.lease("t", limit=1, lease_s=9.0, worker="w", now=NOW + 1)
    depth, took = looks.of(lambda: book.depth("t", now=NOW + 1))
    assert (depth.queued, sum(line.queued for line in depth.lines)) == (TENANTS + 1, TENANTS + 1)
    assert took <= 3, "a lease changes one line"
    (waiting,) = [job for job in (a_job(book, "n9", ttl_s=5.0),)]
    book.enqueue([waiting], now=NOW + 1)
    book.cancel([waiting.id], now=NOW + 1)
    assert looks.of(lambda: book.depth("t", now=NOW + 1)) == (depth, 1)


def test_a_sweep_looks_at_the_lines_where_something_is_due(monkeypatch):
    monkeypatch.setattr(endings, "FLOOR_S", 1e9)
    book, looks = crowded(), Looks(monkeypatch)
    book.sweep(limit=100, now=NOW + TTL_S - 1.5)
    assert looks.of(lambda: book.sweep_due(NOW + TTL_S - 1)) == (False, 0)
    assert looks.of(lambda: book.sweep_due(NOW + TTL_S + 3)) == (True, 0)
    swept, took = looks.of(lambda: book.sweep(limit=100, now=NOW + TTL_S + 3))
    assert len(swept.expired) == 4, "of n0 to n3"
    assert took <= 5
    assert looks.of(lambda: book.sweep_due(NOW + TTL_S + 3)) == (False, 0)
    swept, took = looks.of(lambda: book.sweep(limit=100, now=NOW + 2 * TENANTS))
    assert len(swept.expired) == 100 and took <= 102, "no more than it may end"


def test_the_floor_is_not_sought_again_while_an_old_job_holds_it(monkeypatch):
    monkeypatch.setattr(endings, "FLOOR_STEP", 500)
    book, looks = crowded(1_000), Looks(monkeypatch)
    assert book.sweep_due(NOW)
    book.sweep(limit=100, now=NOW)
    assert looks.of(lambda: book.sweep_due(NOW + 0.5)) == (False, 0)
    assert looks.of(lambda: book.sweep(limit=100, now=NOW + 0.5))[1] == 0
    assert book.sweep_due(NOW + endings.FLOOR_S), "after a while it is"


def test_what_a_failed_step_changed_is_counted_as_it_was(monkeypatch):
    book = crowded(500)
    before = book.depth("t", now=NOW)
    with monkeypatch.context() as broken:
        broken.setattr(book.shelf, "seal", lambda: book.depth("t", now=NOW) and 1 / 0)
        with pytest.raises(ZeroDivisionError):
            book.enqueue([a_job(book, "new")], now=NOW)
        with pytest.raises(ZeroDivisionError):
            book.lease("t", limit=100, lease_s=9.0, worker="w", now=NOW)
        with pytest.raises(ZeroDivisionError):
            book.sweep(limit=100, now=NOW + 2 * TENANTS)
    book.shelf.now = NOW
    assert book.depth("t", now=NOW) == before
    assert len(book.sweep(limit=100, now=NOW + 2 * TENANTS).expired) == 100


def test_tenants_that_come_and_go_leave_nothing_behind():
    book = SqlBook.in_memory(now=NOW)
    book.set_shares({"x": Share(2.0)})
    for n in range(500):
        book.enqueue([a_job(book, f"n{n}"), a_job(book, f"m{n}")], now=NOW)
        leases = book.lease("t", limit=9, lease_s=9.0, worker="w", now=NOW)
        assert len(leases) == 2
    queue = book.shelf.index.by_name["t"]
    assert len(book.shelf.index.ends) <= len(queue.lanes) + 1 <= 5
    assert len(queue._lines._touched) <= 2 * len(queue.lanes) + 64


@pytest.mark.parametrize("made", [lambda: SqlBook.in_memory(now=NOW), Ledger], ids=["SQLite", "memory"])
def test_ordering_keys_that_are_done_with_are_remembered_nowhere(made):
    book = made()
    chains = lambda: book.shelf.index.chains if isinstance(book, SqlBook) else book._shelf.chains
    for begin in range(0, 2_000, 500):
        jobs = [
            Job(book.new_id(NOW), "t", b"{}", NOW, NOW, tenant="a", ordering_key=f"k{begin + n // 2}")
            for n in range(500)
        ]
        book.enqueue(jobs, now=NOW)
        book.cancel([job.id for job in jobs[::5]], now=NOW)
        while leases := book.lease("t", limit=500, lease_s=9.0, worker="w", now=NOW):
            book.commit([settle.complete(lease, output=b"1", now=NOW) for lease in leases], now=NOW)
        assert book.depth("t", now=NOW).open == 0
        assert not chains() and chains().snapshot() == {}
    if isinstance(book, SqlBook):
        queue = book.shelf.index.by_name["t"]
        assert (len(queue.keyed), len(queue.blocked), len(book.shelf.index.ending)) == (0, 0, 0)
