"""Several engines on one store, as several servers would be: no job twice, counts exact, bells across."""

import asyncio
from collections import Counter

import pytest

from forebay.core import settle
from forebay.core.fairness import Share
from forebay.core.job import Claim, Hold, JobError
from forebay.core.lifecycle import State
from forebay.core.settle import SettlePolicy
from tests.brokers.shared.sharing import a_job, clock, finish, lease, shared

pytestmark = pytest.mark.engines
BOOM = JobError("handler_error", "boom")


def test_engines_share_the_work_and_no_job_is_given_twice(server):
    async def body(*brokers):
        jobs = [a_job(brokers[0], tenant=f"t{n % 3}", priority=n % 4) for n in range(300)]
        await brokers[0].enqueue(jobs, now=clock.now())
        given = Counter()

        async def work(broker, number):
            while leases := await lease(broker, limit=number + 1):
                given.update(one.job.id for one in leases)
                assert all(await finish(broker, leases))

        # Several at once meet on the same rows; who found them taken a few times goes home: look once more.
        await asyncio.gather(*(work(broker, number) for number, broker in enumerate(brokers)))
        await work(brokers[0], 50)
        assert given == {job.id: 1 for job in jobs}

    shared(server, "share_work", body)


def test_who_asks_while_another_chooses_gets_what_that_one_leaves(server, monkeypatch):
    async def body(first, second, _):
        jobs = [a_job(first, tenant=f"t{n % 8}", ordering_key=f"k{n % 8}") for n in range(32)]
        await first.enqueue(jobs, now=clock.now())
        chosen, go = asyncio.Event(), asyncio.Event()
        run = type(first._committer)._work

        async def held(self, tx, group):
            answers = await run(self, tx, group)
            if self is first._committer:
                chosen.set()
                await go.wait()
            return answers

        monkeypatch.setattr(type(first._committer), "_work", held)
        asked = asyncio.ensure_future(lease(first, limit=3))
        await chosen.wait()  # it has granted three, and nobody knows yet
        found = await lease(second, limit=5)
        go.set()
        others = await asked
        assert (len(others), len(found)) == (3, 5)
        assert not {one.job.id for one in found} & {one.job.id for one in others}

    shared(server, "chooses", body)


def test_a_renewal_waits_for_no_reader(server):
    async def body(broker):
        await broker.enqueue([a_job(broker)], now=clock.now())
        (held,) = await lease(broker)
        go, reading = asyncio.Event(), asyncio.Semaphore(0)

        async def read():
            connection = await broker._connections.take()
            reading.release()
            await go.wait()
            await broker._connections.give(connection, whole=True)

        readers = [asyncio.ensure_future(read()) for _ in range(40)]
        await reading.acquire()
        async with asyncio.timeout(5.0):  # less than a reader waits for its turn
            claim = Claim(held.job.id, held.fence)
            assert await broker.extend([claim], lease_s=30.0, now=clock.now()) == [Hold.HELD]
            assert await finish(broker, [held]) == [True]
        go.set()
        await asyncio.gather(*readers)

    shared(server, "readers", body, count=1)


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


def test_two_that_fire_one_entry_at_once_make_one_job(server):
    async def body(*brokers):
        for number in range(1, 11):
            due_at = 1_000.0 * number
            receipts = await asyncio.gather(
                *(
                    broker.crons.fire("nightly", due_at, a_job(broker), when="x", now=clock.now())
                    for broker in brokers
                )
            )
            assert sum(receipt is not None for receipt in receipts) == 1
        (mark,) = await brokers[0].crons.marks()
        assert mark.due_at == 10_000.0
        assert (await brokers[0].depth("echo", now=clock.now())).queued == 10

    shared(server, "one_mark", body)


def test_a_delivery_is_claimed_by_one(server):
    async def body(first, *others):
        await first.enqueue([a_job(first, callback_url=f"http://h/{n}") for n in range(30)], now=clock.now())
        await finish(first, await lease(first, limit=30))
        claims = await asyncio.gather(
            *(
                broker.outbox.claim(limit=20, each_max=20, rooms={}, lease_s=30.0, now=clock.now())
                for broker in (first, *others)
            )
        )
        ids = [one.job_id for some in claims for one in some]
        assert len(ids) == len(set(ids)) == 30

    shared(server, "one_claim", body)
