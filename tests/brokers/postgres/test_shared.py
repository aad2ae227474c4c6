"""Several engines on one store, as several servers would be: no job twice, counts exact, bells across."""

import asyncio
from collections import Counter

import pytest

from forebay.brokers.postgres import PostgresBroker
from forebay.clock import SystemClock
from forebay.core import settle
from forebay.core.fairness import Share
from forebay.core.job import Claim, Hold, Job, JobError
from forebay.core.lifecycle import State
from forebay.core.settle import SettlePolicy

pytestmark = pytest.mark.engines
WAIT_MAX_S = 40.0
BOOM = JobError("handler_error", "boom")
clock = SystemClock()


def shared(server, schema, body, count=3):
    """Run `body` with so many engines on one new store."""

    async def run():
        server.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        brokers = [await PostgresBroker.open(server.url(schema), clock=clock) for _ in range(count)]
        try:
            async with asyncio.timeout(WAIT_MAX_S):
                await body(*brokers)
        finally:
            for broker in brokers:
                await broker.close()

    asyncio.run(run())
    check_counts(server, schema)


def check_counts(server, schema):
    """The sums of the differences are what is there."""
    kept = server.sql(
        f"SELECT task, tenant, priority, state, sum(jobs)::int, sum(bytes)::int FROM {schema}.tallies"
        " GROUP BY 1, 2, 3, 4 HAVING sum(jobs) <> 0 OR sum(bytes) <> 0 ORDER BY 1, 2, 3, 4"
    )
    counted = server.sql(
        f"SELECT task, tenant, priority, state, count(*)::int, sum(size)::int FROM {schema}.jobs"
        " GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
    )
    assert kept == counted


def a_job(broker, **fields):
    now = clock.now()
    made = {"id": broker.new_id(now), "task": "echo", "payload": b"1", "created_at": now, "run_at": now}
    return Job(**{**made, **fields})


async def lease(broker, limit=10, worker="w", lease_s=30.0):
    return await broker.lease("echo", limit=limit, lease_s=lease_s, worker=worker, now=clock.now())


async def finish(broker, leases):
    done = [settle.complete(one, output=b"1", now=clock.now()) for one in leases]
    return await broker.commit(done, now=clock.now())


def test_engines_share_the_work_and_no_job_is_given_twice(server):
    async def body(*brokers):
        jobs = [a_job(brokers[0], tenant=f"t{n % 3}", priority=n % 4) for n in range(300)]
        await brokers[0].enqueue(jobs, now=clock.now())
        given = Counter()

        async def work(broker, number):
            while leases := await lease(broker, limit=number + 1):
                given.update(one.job.id for one in leases)
                assert all(await finish(broker, leases))

        # Several at once meet on the same rows; who gets none goes home, so somebody looks once more.
        await asyncio.gather(*(work(broker, number) for number, broker in enumerate(brokers)))
        await work(brokers[0], 50)
        assert given == {job.id: 1 for job in jobs}

    shared(server, "share_work", body)


def test_one_key_at_many_servers_makes_one_job(server):
    async def body(*brokers):
        for number in range(20):
            jobs = [
                a_job(broker, idempotency_key=f"k{number}", body_hash=b"1", fingerprint=b"f%d" % number)
                for broker in brokers
            ]
            answers = await asyncio.gather(
                *(broker.enqueue([job], now=clock.now()) for broker, job in zip(brokers, jobs))
            )
            assert len({answer[0].job_id for answer in answers}) == 1
            assert sorted(answer[0].verdict.value for answer in answers) == ["replayed", "replayed", "stored"]

    shared(server, "one_key", body)


def test_equal_work_at_many_servers_is_done_once(server):
    async def body(*brokers):
        for number in range(10):
            answers = await asyncio.gather(
                *(
                    broker.enqueue([a_job(broker, fingerprint=b"%d" % number)], now=clock.now())
                    for broker in brokers
                )
            )
            assert len({answer[0].job_id for answer in answers}) == 1

    shared(server, "one_work", body)


def test_an_ordering_key_holds_over_servers(server):
    async def body(*brokers):
        jobs = [a_job(brokers[0], ordering_key="k") for _ in range(12)]
        await brokers[0].enqueue(jobs, now=clock.now())
        order = []
        for _ in jobs:
            found = await asyncio.gather(*(lease(broker, limit=5) for broker in brokers))
            leases = [(broker, one) for broker, some in zip(brokers, found) for one in some]
            assert len(leases) == 1
            order.append(leases[0][1].job.id)
            assert await finish(leases[0][0], [leases[0][1]]) == [True]
        assert order == [job.id for job in jobs]

    shared(server, "one_chain", body)


def test_a_bound_of_a_tenant_holds_over_servers(server):
    async def body(*brokers):
        for broker in brokers:
            broker.set_shares({"a": Share(running_max=3)})
        await brokers[0].enqueue([a_job(brokers[0], tenant="a") for _ in range(20)], now=clock.now())
        for _ in range(3):
            found = await asyncio.gather(*(lease(broker, limit=2) for broker in brokers))
            leases = [one for some in found for one in some]
            assert len(leases) == 3
            assert all(await finish(brokers[1], leases))

    shared(server, "one_bound", body)


def test_what_one_does_another_hears(server):
    async def body(first, second, _):
        rung, cancels, changes = asyncio.Event(), asyncio.Event(), []
        ended = asyncio.Event()

        def heard(news):
            changes.extend(news)
            if any(change.state is State.CANCELLED for change in changes):
                ended.set()

        second.on_work(lambda task: rung.set() if task == "echo" else None)
        second.on_cancel(lambda task: cancels.set())
        second.on_change(heard)

        async def until_heard(event):
            """A bell may ring before anybody listens: ring again until it is heard."""
            while not event.is_set():
                await first.enqueue([a_job(first)], now=clock.now())
                await asyncio.sleep(0.05)

        await until_heard(rung)
        (one,) = await lease(second, limit=1)
        await first.cancel([one.job.id], now=clock.now())
        await cancels.wait()
        holds = await second.extend([Claim(one.job.id, one.fence)], lease_s=30.0, now=clock.now())
        assert holds == [Hold.CANCEL]
        await finish(first, [one])
        await ended.wait()

    shared(server, "bells", body)


def test_what_another_holds_is_known_within_a_look(server):
    async def body(first, second, _):
        await first.enqueue([a_job(first, tenant="a") for _ in range(5)], now=clock.now())
        assert first.holding_now("a", now=clock.now()).jobs == 5
        while (
            second.holding_now("a", now=clock.now()).jobs != 5
            or second.load_now("echo", now=clock.now()).queued != 5
        ):
            await asyncio.sleep(0.02)

    shared(server, "gauges", body)


def test_the_jobs_of_a_dead_server_are_given_out_when_their_lease_ends(server):
    async def body(first, second, _):
        await first.enqueue([a_job(first) for _ in range(5)], now=clock.now())
        held = await lease(first, limit=5, lease_s=1.0, worker="dead")
        assert len(held) == 5
        overdue = []
        while len(overdue) < 5:
            overdue = (await second.sweep(limit=10, now=clock.now())).overdue
            await asyncio.sleep(0.02)
        lost = [settle.lose(one, error=BOOM, now=clock.now()) for one in overdue]
        assert all(await second.commit(lost, now=clock.now()))
        assert len(again := await lease(second, limit=5)) == 5
        assert await finish(first, held) == [False] * 5  # the dead one wakes up: too late
        assert all(await finish(second, again))

    shared(server, "dead_server", body)


def test_a_death_counted_by_one_condemns_for_all(server):
    async def body(first, second, _):
        policy = SettlePolicy(quarantine_deaths=2, deaths_max=2)
        for broker in (first, second):
            await broker.enqueue([a_job(broker, payload=b'"deadly"')], now=clock.now())
            (one,) = await lease(broker)
            step = settle.die(one, error=BOOM, policy=policy, now=clock.now(), jitter=0.0)
            assert await broker.commit([step], now=clock.now()) == [True]
            await broker.cancel([one.job.id], now=clock.now())
        assert second.quarantine.counts() == {"echo": 1}
        while first.quarantine.counts() != {"echo": 1}:
            await asyncio.sleep(0.02)

    shared(server, "deadly", body)


def test_long_lists_of_differences_are_summed_up_and_stay_true(server):
    async def body(first, second, _):
        for broker in (first, second) * 100:
            await broker.enqueue([a_job(broker)], now=clock.now())
            await finish(broker, await lease(broker))
        while server.sql("SELECT count(*) FROM sums.tallies")[0][0] > 400:
            await asyncio.sleep(0.05)
        assert (await first.depth("echo", now=clock.now())).queued == 0

    shared(server, "sums", body, count=3)


def test_a_place_in_a_long_line_is_counted_near_its_ends_and_estimated_between(server, monkeypatch):
    async def body(broker, *_):
        jobs = [a_job(broker) for _ in range(40)]
        await broker.enqueue(jobs, now=clock.now())
        exact = [await broker.position(job.id, now=clock.now()) for job in jobs]
        assert exact == list(range(1, 41))
        monkeypatch.setattr("forebay.brokers.postgres.reads.COUNTED_MAX", 10)
        about = [await broker.position(job.id, now=clock.now()) for job in jobs]
        assert about[:5] == [1, 2, 3, 4, 5] and about[-5:] == [36, 37, 38, 39, 40]
        assert set(about[5:-5]) == {21}

    shared(server, "long_line", body, count=1)
