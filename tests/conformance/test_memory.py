"""What the engine in memory adds to the Ledger: bells, listeners, and an end."""

import asyncio

import pytest

from forebay.brokers.memory import MemoryBroker
from forebay.conformance.fixtures import (
    POLICY,
    T0,
    TASK,
    a_job,
    committed,
    dead,
    failure,
    leased,
    running,
    stored,
)
from forebay.core import settle
from forebay.core.lifecycle import State
from forebay.errors import StoreUnavailableError
from forebay.ports.broker import Broker, Change


def with_bells(steps):
    """Run `steps` on a fresh broker; return the tasks that were rung and the changes that were heard."""

    async def run():
        broker: Broker = MemoryBroker()
        rung, heard = [], []
        broker.on_work(rung.append)
        broker.on_change(heard.extend)
        await steps(broker, rung)
        return rung, [(change.task, change.state) for change in heard]

    return asyncio.run(run())


def test_a_bell_rings_for_what_is_ready_and_only_for_that():
    async def steps(broker, rung):
        await stored(broker)
        await stored(broker, task="later", run_at=T0 + 5)
        assert rung == [TASK]
        await broker.sweep(limit=9, now=T0 + 5)

    rung, heard = with_bells(steps)
    assert rung == [TASK, "later"]
    assert heard == [(TASK, State.QUEUED), ("later", State.SCHEDULED), ("later", State.QUEUED)]


def test_a_bell_rings_once_for_many_jobs_of_one_call():
    async def steps(broker, rung):
        await broker.enqueue([a_job(broker) for _ in range(9)], now=T0)

    rung, heard = with_bells(steps)
    assert rung == [TASK]
    assert len(heard) == 9


def test_a_bell_rings_for_a_hand_back_a_redrive_and_a_resume():
    async def steps(broker, rung):
        lease = await running(broker)
        rung.clear()
        await committed(broker, settle.release(lease, policy=POLICY, now=T0), now=T0)
        assert rung == [TASK]
        lease = (await leased(broker))[0]
        await committed(broker, settle.complete(lease, output=b"1", now=T0), now=T0)
        assert rung == [TASK]
        letter = await dead(broker, task="d")
        rung.clear()
        await broker.redrive(letter, a_job(broker, task="d"), now=T0)
        assert rung == ["d"]
        await broker.pause("p", paused=True, now=T0)
        assert rung == ["d"]
        await broker.pause("p", paused=False, now=T0)

    rung, heard = with_bells(steps)
    assert rung == ["d", "p"]
    assert [state.value for task, state in heard if task == "d"] == ["queued", "running", "dead", "queued"]


def test_listeners_hear_every_end():
    async def steps(broker, rung):
        await broker.cancel([(await stored(broker, task="a")).id], now=T0)
        await stored(broker, task="b", expires_at=T0)
        await broker.sweep(limit=9, now=T0)
        lease = await running(broker, task="c")
        await committed(broker, failure(lease, now=T0), now=T0)
        assert await broker.commit([failure(lease, now=T0)], now=T0) == [False]

    heard = with_bells(steps)[1]
    assert [state.value for task, state in heard if task == "a"] == ["queued", "cancelled"]
    assert [state.value for task, state in heard if task == "b"] == ["queued", "expired"]
    assert [state.value for task, state in heard if task == "c"] == ["queued", "running", "retrying"]


def test_a_repeated_submission_rings_no_bell():
    async def steps(broker, rung):
        job = await stored(broker)
        rung.clear()
        await broker.enqueue([job], now=T0)

    rung, heard = with_bells(steps)
    assert rung == []
    assert heard == [(TASK, State.QUEUED)]


def test_who_was_removed_hears_nothing():
    async def run():
        broker, heard = MemoryBroker(), []
        removals = [broker.on_work(heard.append), broker.on_change(heard.extend)]
        kept: list[Change] = []
        broker.on_change(kept.extend)
        for remove in removals:
            remove()
            remove()
        await stored(broker)
        return heard, kept

    heard, kept = asyncio.run(run())
    assert heard == []
    assert len(kept) == 1


def test_a_closed_store_refuses_in_one_line():
    async def run():
        broker = MemoryBroker()
        job = await stored(broker)
        await broker.close()
        await broker.close()
        for call in (broker.get(job.id, now=T0), broker.enqueue([job], now=T0), broker.tasks()):
            with pytest.raises(StoreUnavailableError, match="closed"):
                await call

    asyncio.run(run())
