"""A job that comes alone is stored, granted and ended by a statement each; whatever is more takes the longer way."""

import asyncio

import pytest

from forebay.brokers.postgres.alone import ENTERED_MAX
from forebay.core import settle
from forebay.core.fairness import Share
from forebay.core.job import Sweep, Verdict
from forebay.core.lifecycle import State
from forebay.core.settle import SettlePolicy
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


def test_what_a_node_asks_for_is_granted_by_one_statement_and_what_follows_an_end_by_another(
    server, monkeypatch
):
    async def body(api, node):
        await still(api)
        await still(node)
        jobs = [a_job(api, tenant="a", metadata=b"{}", run_at=clock.now() - 9 + n) for n in range(3)]
        await api.enqueue([jobs[1], jobs[0], jobs[2]], now=clock.now())
        noted = ways(node, monkeypatch)
        (held,) = await lease(node, limit=1, worker="v", lease_s=20.0)
        assert (held.job, held.fence, held.attempt, held.worker) == (jobs[0], 1, 1, "v")
        assert held.ready_at == jobs[0].run_at
        stored = (await node.get(held.job.id, now=clock.now())).standing
        skew_s = node._store.skew_s
        assert (stored.lease_until + skew_s, stored.started_at + skew_s) == (held.until, held.leased_at)
        assert stored.lease_until - stored.started_at == pytest.approx(20.0, abs=1e-3)
        load = node.load_now("echo", now=clock.now())
        assert (load.queued, load.running) == (2, 1)
        done = node.commit([settle.complete(held, output=b"1", now=clock.now())], now=clock.now())
        assert [one.job.id for one in await lease(node)] == [jobs[1].id, jobs[2].id]
        assert await done == [True]
        assert await lease(node) == []
        assert noted == ["one"] * 4
        load = node.load_now("echo", now=clock.now())
        assert (load.queued, load.running) == (0, 2)
        await node._upkeep.look()
        assert node.load_now("echo", now=clock.now())[:3] == (2, 0, 2)

    shared(server, "leased_alone", body, count=2)


def test_a_grant_again_goes_on_where_the_attempts_of_a_job_were(server):
    async def body(api, node):
        job = a_job(api, attempts_max=5)
        await api.enqueue([job], now=clock.now())
        (held,) = await lease(node)
        assert await node.commit(
            [settle.release(held, policy=SettlePolicy(), now=clock.now())], now=clock.now()
        ) == [True]
        await api.enqueue([a_job(api, expires_at=clock.now() - 1)], now=clock.now())
        (again,) = await lease(node)  # not what has ended while it waited
        assert (again.job.id, again.fence, again.attempt) == (job.id, 2, 1)

    shared(server, "leased_again", body, count=2)


@pytest.mark.parametrize("what", ["lines", "priorities", "chained", "bounded", "paused", "reserved"])
def test_what_takes_turns_is_granted_in_turn_though_a_node_asks_alone(server, what, monkeypatch):
    async def body(api, node):
        if what == "paused":
            await api.pause("echo", paused=True, now=clock.now())
        if what == "bounded":
            node.set_shares({"a": Share(running_max=1)})
        if what == "reserved":
            node.set_reserve("echo", 1)
        for _ in range(2):  # the second time it is known that it takes more
            first = a_job(api, tenant="a", ordering_key="k" if what == "chained" else None)
            second = a_job(
                api,
                tenant="b" if what == "lines" else "a",
                priority=2 if what == "priorities" else 5,
                ordering_key=first.ordering_key,
            )
            await api.enqueue([first, second], now=clock.now())
            expected = {"lines": [first, second], "priorities": [second, first], "paused": []}
            leases = await lease(node)
            assert [one.job.id for one in leases] == [one.id for one in expected.get(what, [first])]
            await node.cancel([first.id, second.id], now=clock.now())
            assert all(await finish(node, leases))

    shared(server, f"winding_{what}", body, count=2)


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
