"""Checks of joining: equal work is done once, and whoever asks for it again gets the job that does it."""

import asyncio

from forebay.conformance.fixtures import (
    POLICY,
    RETENTION_S,
    T0,
    TASK,
    a_job,
    committed,
    dead,
    equal,
    failure,
    finished,
    leased_ids,
    record,
    running,
    stored,
)
from forebay.conformance.suite import check, needs
from forebay.core import settle
from forebay.core.job import Job, Receipt, Verdict
from forebay.core.lifecycle import State
from forebay.ports.broker import Broker

PRINT = b"\x00one work"


async def _asked(broker: Broker, *, now: float = T0, **fields: object) -> Receipt:
    """Submit the same work again and return the receipt."""
    fields.setdefault("fingerprint", PRINT)
    return (await broker.enqueue([a_job(broker, at=now, **fields)], now=now))[0]


@check
async def equal_work_joins_a_job_that_has_not_ended(broker: Broker) -> None:
    job = await stored(broker, fingerprint=PRINT)
    equal(await _asked(broker), Receipt(Verdict.JOINED, job.id, State.QUEUED), "while it waits")
    equal((await broker.depth(TASK, now=T0)).open, 1, "open jobs")
    lease = (await broker.lease(TASK, limit=9, lease_s=9.0, worker="w", now=T0))[0]
    equal(await _asked(broker), Receipt(Verdict.JOINED, job.id, State.RUNNING), "while it runs")
    await committed(broker, failure(lease, now=T0), now=T0)
    equal(await _asked(broker), Receipt(Verdict.JOINED, job.id, State.RETRYING), "before it is tried again")
    other = await _asked(broker, fingerprint=PRINT + b"2")
    equal(other.verdict, Verdict.STORED, "other work")
    equal((await _asked(broker, fingerprint=None)).verdict, Verdict.STORED, "work without a fingerprint")


@check
async def equal_work_in_one_call_is_stored_once(broker: Broker) -> None:
    jobs = [a_job(broker, fingerprint=PRINT) for _ in range(3)]
    first = jobs[0].id
    expected = [Receipt(Verdict.STORED, first, State.QUEUED)]
    expected += [Receipt(Verdict.JOINED, first, State.QUEUED)] * 2
    equal(await broker.enqueue(jobs, now=T0), expected, "receipts")
    equal(await leased_ids(broker), [first], "leased")


@check
async def equal_work_at_once_is_stored_once(broker: Broker) -> None:
    answers = await asyncio.gather(*(_asked(broker) for _ in range(16)))
    equal(sorted(r.verdict.value for r in answers), ["joined"] * 15 + ["stored"], "verdicts")
    equal(len({r.job_id for r in answers}), 1, "different ids answered")


@check
@needs("given_time")
async def a_result_answers_equal_work_for_as_long_as_its_job_said(broker: Broker) -> None:
    job_id = await finished(broker, fingerprint=PRINT, cache_s=10.0)
    ended = (await record(broker, job_id)).standing.finished_at or 0.0
    found = await _asked(broker, now=ended + 9.999, cache_s=0.0)
    equal(found, Receipt(Verdict.JOINED, job_id, State.SUCCEEDED), "just before")
    later = await _asked(broker, now=ended + 10.0, cache_s=99.0)
    equal(later.verdict, Verdict.STORED, "at the end")
    newer = await _asked(broker, now=ended + 10.0)
    equal(newer, Receipt(Verdict.JOINED, later.job_id, State.QUEUED), "the newest job counts")


@check
async def nobody_joins_what_failed_or_is_being_cancelled(broker: Broker) -> None:
    await dead(broker, fingerprint=PRINT, cache_s=99.0)
    waiting = await _asked(broker)
    equal(waiting.verdict, Verdict.STORED, "after a dead letter")
    await broker.cancel([waiting.job_id], now=T0)
    lease = await running(broker, fingerprint=PRINT, cache_s=99.0)
    await broker.cancel([lease.job.id], now=T0)
    equal((await _asked(broker)).verdict, Verdict.STORED, "while its cancel is asked for")
    expired = await stored(broker, fingerprint=PRINT + b"3", expires_at=T0)
    await broker.sweep(limit=10, now=T0)
    equal((await _asked(broker, fingerprint=PRINT + b"3")).verdict, Verdict.STORED, f"after {expired.id}")


@check
async def without_an_age_a_result_answers_nobody(broker: Broker) -> None:
    await finished(broker, fingerprint=PRINT)
    equal((await _asked(broker)).verdict, Verdict.STORED, "verdict")


@check
async def a_redriven_job_is_new_and_may_be_joined(broker: Broker) -> None:
    job_id = await dead(broker, fingerprint=PRINT)
    twin = await _asked(broker)
    successor = a_job(broker, fingerprint=PRINT)
    receipt = await broker.redrive(job_id, successor, now=T0)
    equal(receipt, Receipt(Verdict.STORED, successor.id, State.QUEUED), f"beside {twin.job_id}")
    equal((await _asked(broker)).job_id, successor.id, "joined afterwards: the newest")


def _keyed(broker: Broker, key: str, body_hash: bytes) -> Job:
    return a_job(broker, fingerprint=PRINT, idempotency_key=key, body_hash=body_hash)


@check
async def the_key_of_whoever_joined_means_the_job_from_then_on(broker: Broker) -> None:
    job = await stored(broker, fingerprint=PRINT, idempotency_key="first", body_hash=b"1")
    receipts = await broker.enqueue([_keyed(broker, "second", b"2")], now=T0)
    equal(receipts, [Receipt(Verdict.JOINED, job.id, State.QUEUED)], "joined")
    recalled = await broker.recall([_keyed(broker, "second", b"2"), _keyed(broker, "x", b"2")], now=T0)
    equal(recalled, [Receipt(Verdict.REPLAYED, job.id, State.QUEUED), None], "recalled")
    lease = (await broker.lease(TASK, limit=1, lease_s=9.0, worker="w", now=T0))[0]
    await committed(broker, settle.complete(lease, output=b"1", now=T0), now=T0)
    again = [_keyed(broker, "second", b"2"), _keyed(broker, "second", b"1"), _keyed(broker, "first", b"1")]
    expected = [
        Receipt(Verdict.REPLAYED, job.id, State.SUCCEEDED),
        Receipt(Verdict.CONFLICT, job.id, State.SUCCEEDED),
        Receipt(Verdict.REPLAYED, job.id, State.SUCCEEDED),
    ]
    equal(await broker.enqueue(again, now=T0), expected, "repeats")
    equal(await broker.purge([job.id], limit=10, now=T0), 1, "purged")
    fresh = await broker.enqueue([_keyed(broker, "second", b"9")], now=T0)
    equal(fresh[0].verdict, Verdict.STORED, "the key of what was purged")


@check
@needs("given_time")
async def nobody_joins_what_is_past_its_retention(broker: Broker) -> None:
    job_id = await finished(broker, fingerprint=PRINT, cache_s=10 * RETENTION_S)
    ended = (await record(broker, job_id)).standing.finished_at or 0.0
    receipt = await _asked(broker, now=ended + RETENTION_S)
    equal(receipt.verdict, Verdict.STORED, "verdict")


@check
async def a_failure_that_is_retried_can_still_be_joined(broker: Broker) -> None:
    lease = await running(broker, fingerprint=PRINT)
    await committed(broker, settle.release(lease, policy=POLICY, now=T0), now=T0)
    equal(await _asked(broker), Receipt(Verdict.JOINED, lease.job.id, State.QUEUED), "handed back")
