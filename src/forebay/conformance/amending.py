"""Checks of amending: another priority or task for what waits."""

from forebay.conformance.fixtures import (
    T0,
    TASK,
    committed,
    equal,
    failure,
    in_state,
    leased,
    leased_ids,
    record,
    running,
    stored,
)
from forebay.conformance.suite import check, needs
from forebay.core import settle
from forebay.core.job import Amendment, AmendVerdict
from forebay.core.lifecycle import State
from forebay.ports.broker import Broker


@check
async def a_waiting_job_takes_another_priority(broker: Broker) -> None:
    first = await stored(broker)
    second = await stored(broker)
    verdict = await broker.amend(second.id, Amendment(priority=0), now=T0)
    equal(verdict, AmendVerdict.AMENDED, "verdict")
    found = await in_state(broker, second.id, State.QUEUED)
    equal(found.job, second._replace(priority=0), "job")
    equal([lease.job for lease in await leased(broker)], [second._replace(priority=0), first], "leased")


@check
@needs("given_time")
async def a_waiting_job_moves_to_another_task(broker: Broker) -> None:
    job = await stored(broker, version="1", fingerprint=b"f", ordering_key="k", metadata=b'{"a":"b"}')
    behind = await stored(broker, ordering_key="k")
    later = await stored(broker, run_at=T0 + 20)
    change = Amendment(task="other", version="2")
    for each in (job, later):
        equal(await broker.amend(each.id, change, now=T0), AmendVerdict.AMENDED, "verdict")
    moved = job._replace(task="other", version="2", fingerprint=None)
    equal((await record(broker, job.id)).job, moved, "job")
    (lease,) = await leased(broker)
    equal(lease.job.id, behind.id, "leased of its old task")
    depth = await broker.depth("other", now=T0)
    equal((depth.queued, depth.scheduled, depth.bytes), (1, 1, job.size + later.size), "depth")
    equal((await broker.depth(TASK, now=T0)).bytes, behind.size, "bytes of the old task")
    equal([lease.job for lease in await leased(broker, task="other")], [moved], "leased of its new task")
    await committed(broker, settle.complete(lease, output=b"1", now=T0), now=T0)
    last = await stored(broker, ordering_key="k")
    equal(await leased_ids(broker), [last.id], "leased of its old task when that had ended")
    equal((await broker.sweep(limit=9, now=T0 + 20)).promoted, (later.id,), "promoted")
    equal(await leased_ids(broker, task="other", now=T0 + 20), [later.id], "leased when it was due")


@check
async def only_what_waits_is_amended(broker: Broker) -> None:
    lease = await running(broker)
    change = Amendment(priority=0, task="other")
    equal(await broker.amend(lease.job.id, change, now=T0), AmendVerdict.RUNNING, "running")
    equal((await record(broker, lease.job.id)).job, lease.job, "job")
    await committed(broker, failure(lease, now=T0), now=T0)
    equal(await broker.amend(lease.job.id, Amendment(priority=1), now=T0), AmendVerdict.AMENDED, "retrying")
    await broker.cancel([lease.job.id], now=T0)
    equal(await broker.amend(lease.job.id, change, now=T0), AmendVerdict.FINAL, "cancelled")
    nobody = "00000000-0000-7000-8000-000000000000"
    equal(await broker.amend(nobody, change, now=T0), AmendVerdict.UNKNOWN, "unknown")
    equal((await record(broker, lease.job.id)).job.priority, 1, "priority")
    equal(await broker.tasks(), [TASK], "tasks")
