"""Checks of references: a blob is held from the step that stores a job naming it to the job's purge."""

from forebay.conformance.fixtures import (
    LEASE_S,
    RETENTION_S,
    T0,
    TASK,
    a_job,
    committed,
    dead,
    equal,
    failure,
    running,
    stored,
)
from forebay.conformance.suite import Store, check, needs, reopening_check
from forebay.core.blobs import new_id
from forebay.core.job import Claim, Hold, Verdict
from forebay.core.settle import complete
from forebay.ports.broker import Broker

A, B, C = (new_id("", now=T0, chance=bytes([number]) * 16) for number in range(3))


def _naming(*blobs: str) -> bytes:
    return b"[" + b",".join(b'{"$blob": "%b"}' % blob.encode() for blob in blobs) + b"]"


@check
async def a_blob_in_a_payload_is_held_until_its_last_job_is_purged(broker: Broker) -> None:
    equal(await broker.held([A, B], now=T0), [False, False], "held before")
    first = await running(broker, payload=_naming(A, B))
    await stored(broker, payload=_naming(A))
    await stored(broker, payload=b'{"text": "{\\"$blob\\": \\"%b\\"}"}' % C.encode())
    equal(await broker.held([A, B, C], now=T0), [True, True, False], "held by stored jobs")
    await committed(broker, complete(first, output=b"1", now=T0), now=T0)
    equal(await broker.held([A, B], now=T0), [True, True], "held by a job that ended")
    await broker.purge([first.job.id], limit=1, now=T0)
    equal(await broker.held([A, B], now=T0), [True, False], "held after the purge of one of two")


@check
async def a_blob_in_an_output_is_held_until_the_purge(broker: Broker) -> None:
    lease = await running(broker)
    await committed(broker, complete(lease, output=_naming(A), now=T0), now=T0)
    equal(await broker.held([A], now=T0), [True], "held by an output")
    await broker.purge([lease.job.id], limit=1, now=T0)
    equal(await broker.held([A], now=T0), [False], "held after the purge")


@check
async def a_stale_output_holds_nothing(broker: Broker) -> None:
    lease = await running(broker)
    stale = complete(lease, output=_naming(A), now=T0)._replace(fence=lease.fence - 1)
    equal(await broker.commit([stale], now=T0), [False], "committed")
    equal(await broker.held([A], now=T0), [False], "held")


@check
async def a_refused_submission_holds_nothing(broker: Broker) -> None:
    await stored(broker, idempotency_key="k", body_hash=b"1")
    other = a_job(broker, idempotency_key="k", body_hash=b"2", payload=_naming(A))
    (receipt,) = await broker.enqueue([other], now=T0)
    equal(receipt.verdict, Verdict.CONFLICT, "verdict")
    equal(await broker.held([A], now=T0), [False], "held")


@check
@needs("given_time")
async def a_redriven_job_holds_what_its_dead_one_held(broker: Broker) -> None:
    letter = await dead(broker, payload=_naming(A))
    await broker.redrive(letter, a_job(broker, payload=_naming(A)), now=T0)
    equal(await broker.purge(limit=10, now=T0 + RETENTION_S), 1, "purged")
    equal(await broker.held([A], now=T0 + RETENTION_S), [True], "held by the successor")


@check
async def a_failed_attempt_keeps_the_payload_held(broker: Broker) -> None:
    lease = await running(broker, payload=_naming(A))
    await committed(broker, failure(lease, now=T0), now=T0)
    equal(await broker.held([A], now=T0), [True], "held by a retrying job")
    await broker.lease(TASK, limit=1, lease_s=LEASE_S, worker="w", now=T0 + 60)
    equal(await broker.held([A], now=T0), [True], "held by a running job")


@check
@needs("given_time")
async def a_blob_in_a_checkpoint_is_held_until_another_one_takes_its_place(broker: Broker) -> None:
    lease = await running(broker, payload=_naming(A))
    for blob, others in ((B, [A, B]), (C, [A, C])):
        claim = Claim(lease.job.id, lease.fence, None, _naming(blob))
        equal(await broker.extend([claim], lease_s=LEASE_S, now=T0), [Hold.HELD], "renewed")
        expected = [one in others for one in (A, B, C)]
        equal(await broker.held([A, B, C], now=T0), expected, "held after a checkpoint")
    progress = Claim(lease.job.id, lease.fence, b"1", None)
    await broker.extend([progress], lease_s=LEASE_S, now=T0)
    equal(await broker.held([A, B, C], now=T0), [True, False, True], "held after mere progress")
    await committed(broker, failure(lease, now=T0)._replace(checkpoint=_naming(B)), now=T0)
    equal(await broker.held([A, B, C], now=T0), [True, True, False], "held between two tries")
    await broker.sweep(limit=10, now=T0 + 60)
    (lease,) = await broker.lease(TASK, limit=1, lease_s=LEASE_S, worker="w", now=T0 + 60)
    equal(await broker.held([A, B, C], now=T0 + 60), [True, True, False], "held while it runs again")
    await committed(broker, complete(lease, output=_naming(C), now=T0 + 60), now=T0 + 60)
    equal(await broker.held([A, B, C], now=T0 + 60), [True, False, True], "held at the end")


@check
async def a_checkpoint_holds_nothing_once_its_job_is_cancelled_or_lost_for_good(broker: Broker) -> None:
    lease = await running(broker, payload=_naming(A))
    stale = Claim(lease.job.id, lease.fence - 1, None, _naming(C))
    equal(await broker.extend([stale], lease_s=LEASE_S, now=T0), [Hold.LOST], "a stale renewal")
    equal(await broker.held([C], now=T0), [False], "held by a stale checkpoint")
    await committed(broker, failure(lease, now=T0)._replace(checkpoint=_naming(A, B)), now=T0)
    equal(await broker.held([A, B], now=T0), [True, True], "held while it waits")
    await broker.cancel([lease.job.id], now=T0)
    equal(await broker.held([A, B], now=T0), [True, False], "held by a cancelled job")


@reopening_check
@needs("durable", "given_time")
async def a_checkpoint_holds_its_blobs_over_a_restart(store: Store) -> None:
    lease = await running(store.broker)
    claim = Claim(lease.job.id, lease.fence, None, _naming(A))
    await store.broker.extend([claim], lease_s=LEASE_S, now=T0)
    broker = await store.reopen(store.broker, crash=True, now=T0)
    equal(await broker.held([A], now=T0), [True], "held")
    late = T0 + LEASE_S  # in a store that one process owns it is overdue sooner
    (overdue,) = (await broker.sweep(limit=10, now=late)).overdue
    await committed(broker, complete(overdue, output=b"1", now=late), now=late)
    equal(await broker.held([A], now=late), [False], "held at the end")
