"""A job that comes alone is stored, granted and ended by a statement each; whatever is more takes the longer way."""

import asyncio

import pytest

from forebay.brokers.postgres.alone import ENTERED_MAX
from forebay.core.job import Sweep, Verdict
from forebay.core.lifecycle import State
from tests.brokers.shared.sharing import WAIT_MAX_S, a_job, clock, finish, lease, shared, taken
from tests.waiting import until

pytestmark = pytest.mark.engines


def ways(broker, monkeypatch):
    """Return what is noted of each way that a group took."""
    noted, store = [], broker._store
    one, write = store.one, store.write

    async def in_one(query, params):
        rows = await one(query, params)
        noted.append("one" if rows else "none")
        return rows

    async def in_many(work, *, now):
        noted.append("many")
        return await write(work, now=now)

    monkeypatch.setattr(store, "one", in_one)
    monkeypatch.setattr(store, "write", in_many)
    return noted


async def still(broker):
    """Have nothing come in between."""
    await broker._upkeep.close()


def test_a_lone_job_is_granted_by_the_statement_that_stores_it_and_ended_by_one(server, monkeypatch):
    async def body(broker):
        await still(broker)
        noted = ways(broker, monkeypatch)
        job = a_job(broker, expires_at=clock.now() + 60, metadata=b'{"a":1}')
        receipt, (held,) = await taken(broker, job)
        assert (receipt.verdict, receipt.state) == (Verdict.STORED, State.QUEUED)
        stored = (await broker.get(job.id, now=clock.now())).standing
        assert held.job == job
        assert (held.fence, held.attempt, held.worker, held.ready_at) == (1, 1, "w", job.run_at)
        assert (stored.state, stored.fence, stored.attempt) == (State.RUNNING, 1, 1)
        skew_s = broker._store.skew_s
        assert (stored.lease_until + skew_s, stored.started_at + skew_s) == (held.until, held.leased_at)
        assert stored.lease_until - stored.started_at == pytest.approx(30.0, abs=1e-3)
        load = broker.load_now("echo", now=clock.now())
        assert (load.queued, load.running, load.open, load.bytes) == (0, 1, 1, job.size)
        assert await finish(broker, [held]) == [True]
        assert broker.load_now("echo", now=clock.now())[:4] == (0, 0, 0, 0)
        assert noted == ["one", "one"]
        await broker._upkeep.look()
        assert broker.load_now("echo", now=clock.now())[:4] == (0, 0, 0, 0)

    shared(server, "alone", body, count=1)


def test_a_call_that_came_while_another_was_stored_goes_with_what_came_with_it(server, monkeypatch):
    async def body(broker):
        await still(broker)
        noted = ways(broker, monkeypatch)
        first = broker.enqueue([a_job(broker)], now=clock.now())
        while broker._committer._ops:  # until it is on its way
            await asyncio.sleep(0)
        second = broker.enqueue([a_job(broker)], now=clock.now())
        await asyncio.gather(first, second)
        assert noted == ["one", "many"]

    shared(server, "not_calm", body, count=1)


def test_what_others_did_with_lone_jobs_is_seen_after_a_few_of_them(server, monkeypatch):
    monkeypatch.setattr("forebay.brokers.postgres.upkeep.LOOK_S", 10 * WAIT_MAX_S)

    async def body(api, node):
        for _ in range(ENTERED_MAX - 1):
            await api.enqueue([a_job(api)], now=clock.now())
            assert await finish(node, await lease(node)) == [True]
        await api.enqueue([a_job(api)], now=clock.now())  # has it looked, and is the one that is there then
        while api.load_now("echo", now=clock.now()).open != 1:
            await asyncio.sleep(0.01)

    shared(server, "seen_soon", body, count=2)


@pytest.mark.parametrize(
    "fields", [{"idempotency_key": "k"}, {"fingerprint": b"f"}, {"callback_url": "http://h/"}], ids=str
)
def test_what_is_stored_with_a_lone_job_is_stored(server, fields):
    async def body(broker):
        job = a_job(broker, body_hash=b"1", **fields)
        _, held = await taken(broker, job)
        assert await finish(broker, held) == [True]
        if "callback_url" in fields:
            assert (await broker.outbox.get(job.id, now=clock.now())).url == "http://h/"
        else:
            again = a_job(broker, body_hash=b"1", **fields, cache_s=60.0)
            (receipt,) = await broker.enqueue([again], now=clock.now())
            found = Verdict.REPLAYED if "idempotency_key" in fields else Verdict.STORED
            assert receipt.verdict is found

    shared(server, "stored_with", body, count=1)


def test_an_id_that_is_known_is_answered_as_a_repeat(server):
    async def body(broker):
        job = a_job(broker, body_hash=b"1")
        await taken(broker, job)
        for repeat, verdict in ((job, Verdict.REPLAYED), (job._replace(body_hash=b"2"), Verdict.CONFLICT)):
            (receipt,) = await broker.enqueue([repeat], now=clock.now())
            assert (receipt.verdict, receipt.job_id) == (verdict, job.id)

    shared(server, "known_id", body, count=1)


def test_a_lone_end_that_comes_too_late_or_was_to_be_cancelled_is_no_success(server):
    async def body(broker, other):
        _, (held,) = await taken(broker, job := a_job(broker))
        await other.cancel([job.id], now=clock.now())
        assert await finish(broker, [held]) == [True]
        assert (await broker.get(job.id, now=clock.now())).standing.state is State.CANCELLED
        assert await finish(broker, [held]) == [False]

    shared(server, "late_end", body, count=2)


def cut(server):
    """Cut every connection of ours, and see them gone."""
    ours = "SELECT pid FROM pg_stat_activity WHERE application_name = 'forebay'"
    before = set(server.sql(ours))
    server.cut()
    until(lambda: not before & set(server.sql(ours)), WAIT_MAX_S, "they are gone")


def test_a_lone_job_meets_a_connection_that_has_gone_and_is_stored_once(server):
    async def body(broker):
        await still(broker)
        await taken(broker, a_job(broker))
        for _ in range(3):
            await asyncio.to_thread(cut, server)
            receipt, (held,) = await taken(broker, job := a_job(broker))
            assert (receipt.verdict, held.job.id) == (Verdict.STORED, job.id)
            await asyncio.to_thread(cut, server)
            assert await finish(broker, [held]) == [True]

    shared(server, "gone_alone", body, count=1)


def test_a_sweep_that_finds_nothing_to_do_keeps_no_writer_waiting(server, monkeypatch):
    async def body(broker):
        await still(broker)
        await broker.enqueue([a_job(broker)], now=clock.now())
        noted = ways(broker, monkeypatch)
        assert await broker.sweep(limit=10, now=clock.now()) == Sweep((), (), ())
        assert noted == []
        late = a_job(broker, expires_at=clock.now() - 1)
        await broker.enqueue([late], now=clock.now())
        assert (await broker.sweep(limit=10, now=clock.now())).expired == (late.id,)
        assert noted == ["one", "many"]

    shared(server, "nothing_due", body, count=1)
