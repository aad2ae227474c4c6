"""Checks of redriving: a dead letter gets one successor, linked both ways."""

import asyncio

from forebay.conformance.fixtures import (
    T0,
    TASK,
    a_job,
    committed,
    dead,
    equal,
    failure,
    finished,
    in_state,
    leased,
    leased_ids,
    record,
    running,
    stored,
)
from forebay.conformance.suite import check, needs
from forebay.core import settle
from forebay.core.job import Receipt, Verdict
from forebay.core.lifecycle import State
from forebay.ports.broker import Broker


@check
async def redrive_links_a_dead_job_and_its_successor(broker: Broker) -> None:
    old = await dead(broker)
    job = a_job(broker, at=T0 + 5, priority=2, payload=b'"mended"')
    receipt = await broker.redrive(old, job, now=T0 + 5)
    equal(receipt, Receipt(Verdict.STORED, job.id, State.QUEUED), "receipt")
    predecessor = await in_state(broker, old, State.DEAD)
    equal(predecessor.redriven_as, job.id, "redriven_as of the dead job")
    successor = await in_state(broker, job.id, State.QUEUED)
    equal(successor.job, job._replace(redriven_from=old), "successor")
    equal(await leased_ids(broker, now=T0 + 5), [job.id], "leased")


@check
async def redrive_twice_gives_the_same_successor(broker: Broker) -> None:
    old = await dead(broker)
    first, second = a_job(broker), a_job(broker)
    await broker.redrive(old, first, now=T0)
    again = await broker.redrive(old, second, now=T0)
    equal(again, Receipt(Verdict.REPLAYED, first.id, State.QUEUED), "receipt")
    equal(await broker.get(second.id, now=T0), None, "the second successor")
    lease = (await leased(broker))[0]
    await committed(broker, settle.complete(lease, output=b"1", now=T0), now=T0)
    again = await broker.redrive(old, second, now=T0)
    equal(again, Receipt(Verdict.REPLAYED, first.id, State.SUCCEEDED), "receipt")


@check
async def redrive_at_once_makes_one_successor(broker: Broker) -> None:
    old = await dead(broker)
    jobs = [a_job(broker) for _ in range(8)]
    receipts = await asyncio.gather(*(broker.redrive(old, job, now=T0) for job in jobs))
    ids = {receipt.job_id for receipt in receipts if receipt is not None}
    equal((len(receipts), len(ids)), (8, 1), "answers and successors")
    equal((await broker.depth(TASK, now=T0)).queued, 1, "queued jobs")


@check
async def only_a_dead_job_can_be_redriven(broker: Broker) -> None:
    done = await finished(broker)
    lease = await running(broker)
    waiting = await stored(broker)
    for job_id in (done, lease.job.id, waiting.id, "00000000-0000-7000-8000-000000000000", ""):
        equal(await broker.redrive(job_id, a_job(broker), now=T0), None, f"redrive of {job_id!r}")
    equal((await broker.depth(TASK, now=T0)).open, 2, "open jobs")


@check
async def a_redrive_whose_id_or_key_is_taken_links_nothing(broker: Broker) -> None:
    old = await dead(broker)
    taken = await stored(broker, idempotency_key="k", body_hash=b"1")
    for job, verdict in (
        (taken._replace(body_hash=b"2"), Verdict.CONFLICT),
        (a_job(broker, idempotency_key="k", body_hash=b"2"), Verdict.CONFLICT),
        (a_job(broker, idempotency_key="k", body_hash=b"1"), Verdict.REPLAYED),
    ):
        receipt = await broker.redrive(old, job, now=T0)
        equal(receipt, Receipt(verdict, taken.id, State.QUEUED), "receipt")
        equal((await record(broker, old)).redriven_as, None, "redriven_as")
    equal((await record(broker, taken.id)).job, taken, "the job that was there")


@check
async def a_purged_successor_counts_as_none(broker: Broker) -> None:
    old = await dead(broker)
    first, second = a_job(broker), a_job(broker)
    await broker.redrive(old, first, now=T0)
    lease = (await leased(broker))[0]
    await committed(broker, settle.complete(lease, output=b"1", now=T0), now=T0)
    await broker.purge([first.id], limit=10, now=T0)
    again = await broker.redrive(old, second, now=T0)
    equal(again, Receipt(Verdict.STORED, second.id, State.QUEUED), "receipt")
    equal((await record(broker, old)).redriven_as, second.id, "redriven_as")


@check
@needs("given_time")
async def a_successor_may_be_scheduled_and_redriven_itself(broker: Broker) -> None:
    old = await dead(broker)
    job = a_job(broker, run_at=T0 + 10)
    receipt = await broker.redrive(old, job, now=T0)
    equal(receipt, Receipt(Verdict.STORED, job.id, State.SCHEDULED), "receipt")
    await broker.sweep(limit=10, now=T0 + 10)
    lease = (await leased(broker, now=T0 + 10))[0]
    equal(lease.job.redriven_from, old, "redriven_from in the lease")
    await committed(broker, failure(lease, now=T0 + 10, permanent=True), now=T0 + 10)
    third = a_job(broker)
    receipt = await broker.redrive(job.id, third, now=T0 + 10)
    equal(receipt, Receipt(Verdict.STORED, third.id, State.QUEUED), "receipt")
    equal((await record(broker, job.id, now=T0 + 10)).redriven_as, third.id, "redriven_as")
