"""The Ledger beside its contract: its orders, its ids, its audit, its memory and its speed.

What its verbs mean is checked by forebay.conformance and by the drill in tests/conformance.
"""

import bisect
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core import ledger_ids, settle
from forebay.core.book import Book
from forebay.core.crons import CronBook
from forebay.core.job import Claim, Job, JobError
from forebay.core.ledger import Ledger
from forebay.core.ledger_ids import CountedIds
from forebay.core.ledger_index import BLOCK_MAX, STALE_MAX, MomentHeap, SortedKeys
from forebay.core.lifecycle import State
from forebay.core.outbox import OutboxBook

T0 = 1_800_000_000.0
BOOM = JobError("lost", "the node died")
JOBS_PER_S_MIN = (
    5_000  # measured: 25,000 to 55,000 by load of the machine; far below means a wrong order of growth
)


def a_job(book, now=T0, **fields):
    return Job(
        **{
            "id": book.new_id(now),
            "task": "t",
            "payload": b"x" * 100,
            "created_at": now,
            "run_at": now,
            **fields,
        }
    )


def leased(book, now=T0, limit=100):
    return book.lease("t", limit=limit, lease_s=30.0, worker="w", now=now)


# SortedKeys


@given(st.lists(st.tuples(st.sampled_from("arfpd"), st.integers(0, 60)), max_size=200))
def test_sorted_keys_are_a_sorted_set(operations):
    keys, plain = SortedKeys(), []
    for operation, key in operations:
        if operation == "a" and key not in plain:
            keys.add(key)
            bisect.insort(plain, key)
        elif operation == "r" and key in plain:
            keys.remove(key)
            plain.remove(key)
        elif operation == "f":
            assert keys.pop_first() == (plain.pop(0) if plain else None)
        elif operation == "p":
            assert keys.rank(key) == bisect.bisect_left(plain, key)
        elif operation == "d":
            assert list(keys.descending(key)) == [each for each in reversed(plain) if each < key]
        assert list(keys) == plain
        assert len(keys) == len(plain)
        assert keys.first() == (plain[0] if plain else None)


def test_sorted_keys_stay_right_through_many_blocks():
    count = 6 * BLOCK_MAX
    order = [key * 7919 % count for key in range(count)]  # every key once, far from sorted
    keys = SortedKeys()
    for key in order:
        keys.add(key)
    assert list(keys) == list(range(count))
    assert list(keys.descending()) == list(range(count))[::-1]
    assert [keys.rank(key) for key in (0, 1, count // 2, count - 1, count)] == [
        0,
        1,
        count // 2,
        count - 1,
        count,
    ]
    for key in order[: count - 500]:
        keys.remove(key)
    left = sorted(order[count - 500 :])
    assert list(keys) == left
    assert [keys.rank(key) for key in left] == list(range(500))
    assert len(keys._blocks) <= 10  # emptied blocks have joined
    assert all(block for block in keys._blocks)


@pytest.mark.parametrize("key", [0, 5, 99])
def test_a_key_that_is_not_there_cannot_be_taken_out(key):
    keys = SortedKeys()
    for each in (1, 3, 7):
        keys.add(each)
    with pytest.raises(KeyError):
        keys.remove(key)
    assert list(keys) == [1, 3, 7]


# MomentHeap


def test_a_heap_forgets_moments_that_do_not_hold_any_more():
    live = {}
    heap = MomentHeap(lambda moment: live.get(moment[1]) == moment[0])
    for at in range(10 * STALE_MAX):
        if "a" in live:
            heap.live -= 1
        live["a"] = float(at)
        heap.add((float(at), "a"))
        assert len(heap._items) <= 2 + STALE_MAX + 1
    assert heap.first() == (float(10 * STALE_MAX - 1), "a")
    assert heap.snapshot() == [heap.first()]


def test_a_moment_that_is_there_twice_is_given_once():
    heap = MomentHeap(lambda moment: True)
    for _ in range(2):
        heap.add((1.0, "a"))
    heap.add((1.0, "b"))
    heap.add((2.0, "c"))
    for _ in range(2):
        assert heap.until(1.0, 10) == [(1.0, "a"), (1.0, "b")]
    assert heap.until(9.0, 1) == [(1.0, "a")]
    assert heap.until(0.5, 10) == []


def test_renewals_do_not_grow_the_memory():
    book = Ledger()
    book.enqueue([a_job(book)], now=T0)
    lease = leased(book)[0]
    for second in range(5_000):
        book.extend([Claim(lease.job.id, lease.fence)], lease_s=30.0, now=T0 + second)
    assert len(book._shelf.leases._items) <= STALE_MAX + 3
    assert book.audit() == []


# Ids


def test_ids_have_the_form_of_uuid7_and_come_in_order():
    ids = CountedIds()
    made = [ids(T0 + n / 7) for n in range(2_000)] + [ids(T0 - 500) for _ in range(10)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    form = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
    assert all(form.fullmatch(each) for each in made)
    assert int(made[0].replace("-", "")[:12], 16) == int(T0 * 1000)


def test_the_same_calls_give_the_same_answers():
    answers = []
    for _ in range(2):
        book = Ledger()
        receipts = book.enqueue([a_job(book) for _ in range(5)], now=T0)
        answers.append((receipts, leased(book, limit=3), book.sweep(limit=9, now=T0 + 40)))
    assert answers[0] == answers[1]


def test_ids_can_come_from_elsewhere():
    book = Ledger(new_id=lambda now: f"id-{now:g}")
    assert book.new_id(5.0) == "id-5"
    assert book.new_id(3.0) == "id-5"  # time does not run backwards


# Whole and sound


def test_what_was_accepted_is_held_or_purged():
    book = Ledger(retention_s=10.0)
    book.enqueue([a_job(book) for _ in range(30)], now=T0)
    done = [settle.complete(lease, output=b"1", now=T0) for lease in leased(book, limit=20)]
    book.commit(done, now=T0)
    assert book.purge(limit=15, now=T0 + 10) == 15
    assert (book.accepted, book.purged, len(book._shelf.jobs)) == (30, 15, 15)
    assert book.audit() == []


DAMAGES = {
    "bytes": lambda shelf, entry: setattr(entry.queue, "bytes", 7),
    "counts": lambda shelf, entry: entry.queue.counts.update({State.DEAD: 3}),
    "order": lambda shelf, entry: entry.line.order.remove(entry.order),
    "ids": lambda shelf, entry: shelf.ids.remove(entry.job.id),
    "keys": lambda shelf, entry: shelf.keys.clear(),
    "number of ends": lambda shelf, entry: setattr(shelf.ends, "live", 9),
    "ends": lambda shelf, entry: shelf.ends._items.clear(),
    "ages": lambda shelf, entry: entry.queue.ages._items.clear(),
    "finished_at": lambda shelf, entry: setattr(entry, "finished_at", T0),
    "lease_until": lambda shelf, entry: setattr(entry, "lease_until", T0),
    "output": lambda shelf, entry: setattr(entry, "output", b"1"),
    "attempts": lambda shelf, entry: setattr(entry, "attempt", 9),
    "without a queue": lambda shelf, entry: shelf.queues.clear(),
    "accepted": lambda shelf, entry: None,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_audit_finds_damage(damage):
    book = Ledger()
    job = a_job(book, idempotency_key="k", expires_at=T0 + 60)
    book.enqueue([job], now=T0)
    assert book.audit() == []
    DAMAGES[damage](book._shelf, book._shelf.jobs[job.id])
    book.accepted += damage == "accepted"
    assert any(damage in problem for problem in book.audit()), book.audit()


def test_an_audit_of_much_is_short():
    book = Ledger()
    book.enqueue([a_job(book) for _ in range(2_000)], now=T0)
    book._shelf.due.live = 5
    book._shelf.ids = SortedKeys()
    assert all(len(problem) < 1_000 for problem in book.audit())


def test_recovery_ends_every_lease_now_and_nothing_else():
    book = Ledger()
    book.enqueue([a_job(book) for _ in range(3)], now=T0)
    first, second = leased(book, limit=1)[0], leased(book, now=T0 + 20, limit=1)[0]
    assert book.recover(now=T0 + 30) == 1  # the first ended by itself at that instant
    assert book.sweep(limit=9, now=T0 + 30).overdue == (first, second._replace(until=T0 + 30))
    assert book.recover(now=T0 + 40) == 0
    assert book.depth("t", now=T0 + 40).queued == 1
    assert book.audit() == []


def test_states_are_of_the_jobs_that_are_there():
    book = Ledger()
    job = a_job(book)
    book.enqueue([job], now=T0)
    assert book.states([job.id, "unknown"]) == [(job.id, "t", State.QUEUED)]


def test_purged_ids_are_remembered_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(ledger_ids, "PURGED_KEPT", 3)
    book = Ledger()
    jobs = [a_job(book) for _ in range(5)]
    book.enqueue(jobs, now=T0)
    book.cancel([job.id for job in jobs], now=T0)
    book.purge([job.id for job in jobs], limit=9, now=T0)
    assert [book.was_purged(job.id, now=T0) for job in jobs] == [False, False, True, True, True]


def test_a_ledger_is_a_book():
    book: Book = Ledger()
    outbox: OutboxBook = book.outbox
    crons: CronBook = book.crons
    for contract, held in ((Book, book), (OutboxBook, outbox), (CronBook, crons)):
        verbs = {name for name in vars(contract) if not name.startswith("_")} - {
            "outbox",
            "crons",
            "quarantine",
        }
        assert verbs <= {name for name in dir(held) if callable(getattr(held, name))}


# Speed


def test_a_heap_of_expired_jobs_does_not_slow_the_good_one():
    book = Ledger()
    stale = [a_job(book, priority=0, expires_at=T0 + 1) for _ in range(5_000)]
    book.enqueue(stale, now=T0)
    good = a_job(book, priority=9, now=T0)
    book.enqueue([good], now=T0)
    assert [lease.job.id for lease in leased(book, now=T0 + 5)] == [good.id]
    began = time.process_time()
    for _ in range(1_000):
        assert leased(book, now=T0 + 5) == []
    assert time.process_time() - began < 1.0  # they are walked once, not at every lease
    assert len(book.sweep(limit=5_000, now=T0 + 5).expired) == 5_000
    assert book.depth("t", now=T0 + 5).queued == 0


def test_jobs_go_through_fast_enough_and_a_backlog_costs_little():
    rates = [through(5_000, backlog) for backlog in (0, 20_000)]
    assert min(rates) > JOBS_PER_S_MIN, rates


def through(count, backlog):
    """Return jobs a second of processor time: stored, leased, committed, purged, a hundred at a time."""
    book = Ledger()
    book.enqueue([a_job(book, priority=9, expires_at=T0 + 86_400) for _ in range(backlog)], now=T0)
    began = time.process_time()
    for turn in range(count // 100):
        now = T0 + turn * 0.001
        book.enqueue([a_job(book, now, expires_at=now + 86_400) for _ in range(100)], now=now)
        leases = leased(book, now)
        book.commit([settle.complete(lease, output=b"1", now=now) for lease in leases], now=now)
        book.purge([lease.job.id for lease in leases], limit=100, now=now)
        book.depth("t", now=now)
    took = time.process_time() - began
    assert (book.accepted, book.purged) == (backlog + count, count)
    return count / took


def test_a_place_in_a_long_line_is_found_at_once():
    book = Ledger()
    jobs = [a_job(book) for _ in range(20_000)]
    book.enqueue(jobs, now=T0)
    began = time.process_time()
    for place in range(0, 20_000, 50):
        assert book.position(jobs[place].id, now=T0) == place + 1
    assert time.process_time() - began < 1.0
