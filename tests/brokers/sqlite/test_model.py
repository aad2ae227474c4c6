"""Random programs: the book on SQL answers as the Ledger does, and a failed transaction leaves no trace."""

import copy
import dataclasses
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from forebay.brokers.sqlite import SqlBook, lane, spans
from forebay.core import ledger_order, settle
from forebay.core.blobs import new_id
from forebay.core.fairness import Share
from forebay.core.job import Amendment, Claim, Job, JobError, Lease, Query
from forebay.core.ledger import Ledger
from forebay.core.lifecycle import FINAL, State
from forebay.core.outbox import Delivery, DeliveryState, DeliveryStep, Try
from forebay.core.retry import RetryPolicy
from forebay.core.settle import SettlePolicy
from forebay.core.turns import Order

TASKS = ("a", "b")
POLICY = SettlePolicy(retry=RetryPolicy(base_s=2.0, cap_s=8.0), releases_max=3)
BLOBS = [new_id("", now=1.0, chance=bytes([number]) * 16) for number in range(4)]
LISTINGS = [
    Query(task="b"),
    Query(tenant="x"),
    Query(task="a", tenant="y"),
    *(Query(states=frozenset({state})) for state in State),
    Query(tenant="x", states=frozenset({State.QUEUED, State.RETRYING, State.EXPIRED})),
    Query(states=frozenset({State.SUCCEEDED, State.CANCELLED})),
]
BOOM = JobError("handler_error", "boom", "ValueError", 1)


@dataclasses.dataclass
class Program:
    """A seeded program over one book, or two that must agree."""

    chance: random.Random
    now: float = 1000.0
    ids: list[str] = dataclasses.field(default_factory=list)
    leases: list[Lease] = dataclasses.field(default_factory=list)
    claims: list[Delivery] = dataclasses.field(default_factory=list)
    setting: tuple[str | None, Order, Share] = (None, Order.ARRIVAL, Share())
    orders: dict[str, Order] = dataclasses.field(default_factory=dict)
    reserve: int | None = None
    reserved: dict[str, int | None] = dataclasses.field(default_factory=dict)
    shares: dict[str, Share] = dataclasses.field(default_factory=dict)

    def job(self, new_id: Callable[[float], str]) -> Job:
        draw = self.chance
        run_at = self.now + draw.choice((0, 0, 0, 0, -3, -0.5, 2, 7))
        job = Job(
            new_id(self.now),
            draw.choice(TASKS),
            draw.choice(
                (b'{"n":%d}' % draw.randrange(1000), b'{"$blob":"%b"}' % draw.choice(BLOBS).encode())
            ),
            self.now,
            run_at,
            priority=draw.choice((5, 5, 5, 2, 8)),
            attempts_max=draw.choice((1, 3)),
            expires_at=draw.choice((None, None, run_at + 6, run_at + 20)),
            deadline_at=draw.choice((None, None, None, self.now + 10)),
            tenant=draw.choice(("", "x")),
            idempotency_key=draw.choice((None, None, None, "k1", "k2")),
            body_hash=draw.choice((b"1", b"2")),
            fingerprint=draw.choice((None, None, None, b"f1", b"f2")),
            cache_s=draw.choice((0.0, 4.0)),
            metadata=draw.choice((b"", b'{"k":"v","n":1.5}')),
            version=draw.choice(("", "2")),
            callback_url=draw.choice((None, None, "https://example.org/hook", "https://example.net/x")),
            ordering_key=draw.choice((None, None, None, "o1", "o2")),
        )
        self.ids.append(job.id)
        return job

    def transition(self, lease: Lease) -> Any:
        draw, now = self.chance, self.now
        jitter = draw.random()
        return draw.choice(
            (
                lambda: settle.complete(lease, output=b'"out"', now=now),
                lambda: settle.complete(lease, output=b'{"$blob":"%b"}' % BLOBS[0].encode(), now=now),
                lambda: settle.fail(lease, error=BOOM, policy=POLICY, now=now, jitter=jitter),
                lambda: settle.fail(lease, error=BOOM, policy=POLICY, now=now, jitter=jitter, permanent=True),
                lambda: settle.die(lease, error=BOOM, policy=POLICY, now=now, jitter=jitter),
                lambda: settle.suspect(lease, error=BOOM, policy=POLICY, now=now),
                lambda: settle.lose(lease, error=BOOM, now=now),
                lambda: settle.release(lease, policy=POLICY, now=now),
                lambda: settle.defer(lease, until=now + 3, policy=POLICY, now=now),
                lambda: settle.expire(lease, now=now),
                lambda: settle.cancel(lease, now=now),
            )
        )()

    def some_id(self) -> str:
        return self.chance.choice(self.ids) if self.ids else "0" * 36

    def call(self, new_id: Callable[[float], str]) -> Callable[[Any], Any]:
        """Return the next call, to be made on one book or on several."""
        draw, now = self.chance, self.now
        kind = draw.randrange(21)
        if 13 <= kind <= 15:
            return self.outbox_call(kind)
        if kind <= 2:
            jobs = [self.job(new_id) for _ in range(draw.randrange(1, 6))]
            draw.shuffle(jobs)
            return lambda book: book.enqueue(jobs, now=now)
        if kind <= 4:
            task, limit = draw.choice(TASKS), draw.randrange(5)
            return lambda book: book.lease(task, limit=limit, lease_s=4.0, worker="w", now=now)
        if kind <= 6 and self.leases:
            draw.shuffle(self.leases)
            count = draw.randrange(1, 4)
            steps = [self.transition(lease) for lease in self.leases[:count]]
            steps = [
                step if step.state in FINAL else step._replace(checkpoint=draw.choice((None, b"[3]")))
                for step in steps
            ]
            del self.leases[: count - draw.randrange(2)]
            return lambda book: book.commit(steps, now=now)
        if kind == 7 and self.leases:
            claims = [
                Claim(
                    lease.job.id,
                    lease.fence,
                    draw.choice((None, b'{"share":0.5}')),
                    draw.choice((None, b"[1]", b"[2]")),
                )
                for lease in self.leases[:3]
            ]
            return lambda book: book.extend(claims, lease_s=5.0, now=now)
        if kind == 8:
            ids = [self.some_id() for _ in range(draw.randrange(1, 3))]
            return lambda book: book.cancel(ids, now=now)
        if kind == 9:
            limit = draw.choice((1, 3, 100))
            return lambda book: book.sweep(limit=limit, now=now)
        if kind == 10:
            named = draw.choice((None, None, [self.some_id()]))
            limit = draw.choice((0, 1, 100))
            return lambda book: book.purge(named, limit=limit, now=now)
        if kind == 11:
            job_id, job = self.some_id(), self.job(new_id)
            return lambda book: book.redrive(job_id, job, now=now)
        if kind == 20:
            job_id, payload = self.some_id(), self.job(new_id).payload
            return lambda book: book.edit(job_id, payload, now=now)
        if kind == 16:
            asked = [self.job(new_id) for _ in range(3)]
            return lambda book: book.recall(asked, now=now)
        if kind == 17:
            name, draining = draw.choice(TASKS), draw.random() < 0.3
            return lambda book: book.drain(name, draining=draining, now=now)
        if kind == 18:
            job_id, priority = self.some_id(), draw.choice((None, 0, 5, 8))
            change = Amendment(priority, draw.choice((None, *TASKS)), draw.choice(("", "3")))
            return lambda book: book.amend(job_id, change, now=now)
        if kind == 19:
            self.reserve = draw.choice((None, None, 0, 2))
            self.setting = draw.choice((*TASKS, None)), draw.choice(list(Order)), Share(draw.choice((1, 3)))
            if draw.random() < 0.3:
                self.setting = (*self.setting[:2], Share(1.0, draw.choice((1, 2))))
            return self.set
        task, paused = draw.choice(TASKS), draw.random() < 0.3
        return lambda book: book.pause(task, paused=paused, now=now)

    def outbox_call(self, kind: int) -> Callable[[Any], Any]:
        draw, now = self.chance, self.now
        if kind == 13 and draw.random() < 0.3:
            job_id = self.some_id()
            return lambda book: book.outbox.replay(job_id, now=now)
        if kind == 15 and self.claims:
            row = draw.choice(self.claims[-6:])
            tried = Try(row.tries, now, 0.5, draw.choice((None, 500)))
            state, due_at = draw.choice(
                ((DeliveryState.WAITING, now + draw.choice((0, 3))), (DeliveryState.DELIVERED, None))
            )
            return lambda book: book.outbox.settle(
                [DeliveryStep(row.job_id, state, tried, now, due_at)], now=now
            )
        limit, each_max = draw.choice((0, 1, 100)), draw.choice((1, 100))
        rooms = draw.choice(({}, {}, {"https://example.org": 0}))
        return lambda book: book.outbox.claim(
            limit=limit, each_max=each_max, rooms=rooms, lease_s=4.0, now=now
        )

    def set(self, book: Any) -> None:
        """Say an order or a share to a book. Neither is stored."""
        task, order, share = self.setting
        if task is None:
            self.shares = {"x": share}
            book.set_shares(self.shares)
        else:
            self.orders[task] = order
            book.set_order(task, order)
            self.reserved[task] = self.reserve
            book.set_reserve(task, self.reserve)

    def look(self, book: Any) -> list[Any]:
        """Return everything that a reader can see."""
        now = self.now
        seen: list[Any] = [
            book.held(BLOBS, now=now),
            book.tasks(),
            [book.holding(tenant, now=now) for tenant in ("", "x", "y")],
            [book.depth(task, now=now) for task in TASKS],
        ]
        for job_id in self.ids[-40:]:
            seen.append((book.get(job_id, now=now), book.position(job_id, now=now)))
            seen.append(book.outbox.get(job_id, now=now))
            seen.append(book.waits_for(job_id, now=now))
        some = Query(limit=self.seeded_limit(), states=frozenset({State.QUEUED, State.DEAD, State.SUCCEEDED}))
        seen += [self.pages(book, query) for query in (Query(limit=3), some)]
        seen.append(self.listed(book, Query(metadata=(("n", "1.5"),), window_max=4)))
        seen += [self.listed(book, query) for query in LISTINGS]
        return seen

    def pages(self, book: Any, query: Query) -> list[Any]:
        """The records of each page that has some: none is short but the last, where the window is large."""
        found: list[Any] = []
        after = None
        for _ in range(1000):
            page = book.find(query._replace(after=after), now=self.now)
            found += [page.records] if page.records else []
            after = page.next_after
            if after is None:
                return found
        raise AssertionError("a listing without end")

    def listed(self, book: Any, query: Query) -> list[Any]:
        """Every record of a listing: where its pages end is the engine's own."""
        found: list[Any] = []
        after = None
        for _ in range(1000):
            window = min(query.window_max, 5)
            page = book.find(query._replace(after=after, limit=3, window_max=window), now=self.now)
            found += page.records
            after = page.next_after
            if after is None:
                return found
        raise AssertionError("a listing without end")

    def seeded_limit(self) -> int:
        return 1 + len(self.ids) % 4


def run(seed: int, steps: int) -> None:
    program = Program(random.Random(seed))
    draw = program.chance
    book = SqlBook.in_memory(retention_s=15.0)
    ledger = Ledger(retention_s=15.0, new_id=book.new_id)
    for step in range(steps):
        program.now += draw.choice((0, 0, 0.5, 1, 3))
        if draw.random() < 0.08:
            fail_a_transaction(program, book)
        if draw.random() < 0.05:
            reopened(program, book)
        if draw.random() < 0.05:
            book = loaded(program, book)
            ledger_order.forget_service(ledger._shelf)
            ledger._new_id = book.new_id
        call = program.call(ledger.new_id)
        expected = call(ledger)
        assert call(book) == expected, f"seed {seed} step {step}"
        if isinstance(expected, list) and expected and isinstance(expected[0], Lease):
            program.leases += expected
        if isinstance(expected, list) and expected and isinstance(expected[0], Delivery):
            program.claims += expected
        if step % 10 == 9:
            assert program.look(book) == program.look(ledger), f"seed {seed} step {step}"


def fail_a_transaction(program: Program, book: SqlBook) -> None:
    """Do something inside a transaction that is then rolled back: nothing may have changed."""
    before, service = program.look(book), accounts(book)
    aside = Program(random.Random(program.chance.random()), program.now, list(program.ids))
    aside.claims = list(program.claims)
    aside.leases, aside.orders, aside.shares = list(program.leases), dict(program.orders), {}
    book.shelf.begin()
    for _ in range(aside.chance.randrange(1, 5)):
        aside.call(book.new_id)(book)
    book.shelf.seal()
    book.shelf.rollback()
    for task in TASKS:
        book.set_reserve(task, program.reserved.get(task))  # not part of a transaction
    book.set_shares(program.shares)  # not part of a transaction
    assert program.look(book) == before
    assert accounts(book) == service


def accounts(book: SqlBook) -> list[Any]:
    """Return what the order goes by and no reader sees."""
    index = book.shelf.index
    fair = [queue.fair for queue in index.by_number.values()]
    seen: list[Any] = [(f.on, f._accounts, f._charges, f._mean_s, f._reached, f._alone) for f in fair]
    return copy.deepcopy(
        [
            *seen,
            index.chains.snapshot(),
            index.shares._running,
            [q.reserve.running for q in index.by_number.values() if q.reserve.others_max is not None],
        ]
    )


def loaded(program: Program, book: SqlBook) -> SqlBook:
    """Return a book made from the tables; leases keep their ends, which a real opening would cut."""
    again = SqlBook(book.shelf.connection, retention_s=15.0, now=math.inf)
    again.shelf.now = program.now
    again.set_shares(program.shares)
    for task, order in program.orders.items():
        again.set_order(task, order)
        again.set_reserve(task, program.reserved.get(task))
    return again


def reopened(program: Program, book: SqlBook) -> None:
    """A second index built from the tables must say what the first one says."""
    again = loaded(program, book)
    assert program.look(again) == program.look(book)


@pytest.mark.parametrize("seed", range(6))
def test_the_book_on_sql_answers_as_the_ledger_does(seed: int) -> None:
    run(seed, 120)


@pytest.mark.parametrize("seed", range(3))
def test_it_still_does_when_lines_have_many_chunks_and_blocks_are_small(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "CHUNK_JOBS", 3)
    for name, value in (("BLOCK_BITS", 1), ("TENANTS_MAX", 1), ("NOTED_MAX", 3)):
        monkeypatch.setattr(spans, name, value)
    run(1000 + seed, 200)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shard", range(20))
def test_thousands_of_programs_answer_as_the_ledger_does(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(100 * shard, 100 * (shard + 1)):
        monkeypatch.setattr(lane, "CHUNK_JOBS", random.Random(seed).choice((1, 2, 5, 4096)))
        run(10_000 + seed, 120)


def test_leases_that_a_failed_transaction_settled_are_still_found_overdue() -> None:
    book = SqlBook.in_memory()
    job = Job(book.new_id(1000.0), "a", b"{}", 1000.0, 1000.0)
    book.enqueue([job], now=1000.0)
    (lease,) = book.lease("a", limit=1, lease_s=4.0, worker="w", now=1000.0)
    book.shelf.begin()
    book.commit([settle.complete(lease, output=b"1", now=1010.0)], now=1010.0)
    assert book.sweep(limit=10, now=1010.0).overdue == ()
    book.shelf.rollback()
    assert book.sweep(limit=10, now=1010.0).overdue == (lease,)


def test_a_lane_that_a_failed_transaction_made_is_not_of_the_order_it_tried() -> None:
    book = SqlBook.in_memory()
    book.set_order("a", Order.DEADLINE)
    jobs = [Job(book.new_id(0.0), "a", b"{}", 0.0, 0.0, deadline_at=at) for at in (50.0, 20.0, 40.0)]
    book.shelf.begin()
    book.set_order("a", Order.ARRIVAL)
    book.enqueue([Job(book.new_id(0.0), "a", b"{}", 0.0, 0.0)], now=0.0)
    book.shelf.seal()
    book.shelf.rollback()
    book.enqueue(jobs, now=0.0)
    leases = book.lease("a", limit=3, lease_s=4.0, worker="w", now=0.0)
    assert [lease.job.deadline_at for lease in leases] == [20.0, 40.0, 50.0]


def test_an_end_that_a_failed_transaction_looked_past_is_still_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "CHUNK_JOBS", 1)  # in the middle of a line, not at its end
    book = SqlBook.in_memory(retention_s=15.0)
    first, second = (Job(book.new_id(0.0), "a", b"{}", 0.0, 0.0, expires_at=at) for at in (5.0, 20.0))
    book.enqueue([first, second], now=0.0)
    book.shelf.begin()
    book.cancel([first.id], now=6.0)
    book.sweep(limit=10, now=6.0)  # sees that nothing here ends before 20.0
    book.shelf.seal()
    book.shelf.rollback()
    assert book.sweep(limit=10, now=6.0).expired == (first.id,)
