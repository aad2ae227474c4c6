"""Who waits for work in the process that takes a job in gets it in the submit's own step."""

import asyncio

import pytest

from forebay.brokers.relay import MemoryHub, MemoryTransport, Relay
from forebay.core import settle
from forebay.core.fairness import Share
from forebay.core.job import Verdict
from forebay.core.lifecycle import State
from tests.brokers.shared.sharing import WAIT_MAX_S, a_job, clock, lease, shared, taken

pytestmark = pytest.mark.engines


def test_a_lease_that_waits_for_work_joins_the_step_of_the_submit(server):
    async def body(broker):
        asked = []

        def rung(task):
            asked.append(broker.lease(task, limit=10, lease_s=30.0, worker="w", now=clock.now()))

        broker.on_work(rung)
        groups = broker._committer.groups
        job = a_job(broker)
        await broker.enqueue([job], now=clock.now())
        granted = await asked[0]
        assert [one.job.id for one in granted] == [job.id]
        assert broker._committer.groups == groups + 1
        assert len(asked) == 1, "work that was looked for is not rung for again"

    shared(server, "joined", body, count=1)


def test_work_that_nobody_here_looked_for_is_rung_for_when_it_is_stored(server):
    async def body(broker):
        rung = []
        broker.on_work(rung.append)
        await broker.enqueue([a_job(broker)], now=clock.now())
        assert rung == ["echo", "echo"], "as it comes, and as it is there"

    shared(server, "rung", body, count=1)


def test_a_job_for_later_rings_nobody(server):
    async def body(broker):
        rung = []
        broker.on_work(rung.append)
        await broker.enqueue([a_job(broker, run_at=clock.now() + 3600)], now=clock.now())
        assert rung == []

    shared(server, "later", body, count=1)


def test_who_waits_for_a_job_hears_how_it_ended_as_a_reader_finds_it(server):
    async def body(broker, other):
        heard, afar = [], []
        broker.on_change(heard.extend)
        other.on_change(afar.extend)
        jobs = [a_job(broker, metadata=b"{}"), *(a_job(broker) for _ in range(3))]
        await broker.enqueue(jobs, now=clock.now())
        held = await lease(broker)
        steps = [settle.complete(one, output=b"1", now=clock.now()) for one in held]
        assert await broker.commit(steps[:1], now=clock.now()) == [True]  # alone, and together
        assert await broker.commit(steps[1:], now=clock.now()) == [True] * 3
        ends = [change for change in heard if change.state is State.SUCCEEDED]
        assert {change.job_id for change in ends} == {job.id for job in jobs}
        for change in ends:
            assert change.settled.record() == await broker.get(change.job_id, now=clock.now())
        assert not len(broker._grants.granted), "what has ended is forgotten"
        assert all(change.settled is None for change in afar)

    shared(server, "heard_end", body, count=2)


@pytest.mark.parametrize("behind", ["older", "paused", "chained", "bounded"])
def test_a_job_that_is_waited_for_is_not_granted_out_of_turn(server, behind):
    async def body(broker, other):
        first = a_job(broker, tenant="a", ordering_key="k" if behind == "chained" else None)
        job = a_job(broker, tenant="a", ordering_key=first.ordering_key)
        if behind in {"older", "chained"}:
            await other.enqueue([first], now=clock.now())
        if behind == "paused":
            await other.pause("echo", paused=True, now=clock.now())
        if behind == "bounded":
            broker.set_shares({"a": Share(running_max=1)})
            await other.enqueue([first], now=clock.now())
            assert len(await lease(other, limit=1)) == 1
        receipt, leases = await taken(broker, job)
        assert receipt.verdict is Verdict.STORED
        expected = {"older": [first.id, job.id], "chained": [first.id], "paused": [], "bounded": []}
        assert [one.job.id for one in leases] == expected[behind]

    shared(server, f"turn_{behind}", body, count=2)


def test_behind_a_relay_it_joins_too_and_the_broker_gets_no_hint_of_the_job(server):
    hub = MemoryHub()

    async def body(store):
        relay = await Relay.open(store, MemoryTransport(hub), clock=clock)
        try:
            asked = []

            def rung(task):
                asked.append(relay.lease(task, limit=10, lease_s=30.0, worker="w", now=clock.now()))

            unhang = relay.on_work(rung)
            groups = store._committer.groups
            job = a_job(relay)
            await relay.enqueue([job], now=clock.now())
            assert [one.job.id for one in await asked[0]] == [job.id]
            assert store._committer.groups == groups + 1 and len(asked) == 1
            unhang()  # what nobody here waits for is announced
            other = a_job(relay)
            await relay.enqueue([other], now=clock.now())
            async with asyncio.timeout(WAIT_MAX_S):
                while not relay.told().events["sent"]:
                    await asyncio.sleep(0.01)
            assert relay.told().events["sent"] == hub.depth("echo") == 1
        finally:
            await relay.close()

    shared(server, "joined_relay", body, count=1)
