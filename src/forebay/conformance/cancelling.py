"""Checks of cancelling: at once while waiting, by asking while running, never against a result."""

from forebay.conformance.fixtures import (
    T0,
    TASK,
    committed,
    dead,
    equal,
    every_end,
    failure,
    finished,
    in_state,
    leased,
    leased_ids,
    record,
    running,
    standing_after,
    stored,
)
from forebay.conformance.suite import check, needs
from forebay.core import settle
from forebay.core.job import CancelVerdict, JobError
from forebay.core.lifecycle import State
from forebay.ports.broker import Broker


@check
@needs("given_time")
async def a_waiting_job_is_cancelled_at_once(broker: Broker) -> None:
    queued = await stored(broker)
    scheduled = await stored(broker, run_at=T0 + 50)
    retrying = await running(broker, task="r")
    await committed(broker, failure(retrying, now=T0), now=T0)
    ids = [queued.id, scheduled.id, retrying.job.id]
    equal(await broker.cancel(ids, now=T0 + 1), [CancelVerdict.CANCELLED] * 3, "verdicts")
    for job_id, attempt in zip(ids, (0, 0, 1), strict=True):
        standing = (await in_state(broker, job_id, State.CANCELLED, now=T0 + 1)).standing
        equal(standing.finished_at, T0 + 1, "finished_at")
        equal(standing.error, JobError("cancelled", "cancelled while it waited", "", attempt), "error")
    swept = await broker.sweep(limit=10, now=T0 + 500)
    equal((swept.promoted, swept.expired), ((), ()), "swept")
    equal(await leased(broker, now=T0 + 500), [], "leases")
    equal((await broker.depth(TASK, now=T0 + 500)).open, 0, "open jobs")


@check
async def cancel_answers_by_state_and_in_order(broker: Broker) -> None:
    done, letter = await finished(broker), await dead(broker)
    lease = await running(broker)
    waiting = await stored(broker)
    unknown = "00000000-0000-7000-8000-000000000000"
    ids = [done, letter, lease.job.id, waiting.id, waiting.id, unknown, "", lease.job.id]
    expected = [
        CancelVerdict.FINAL,
        CancelVerdict.FINAL,
        CancelVerdict.REQUESTED,
        CancelVerdict.CANCELLED,
        CancelVerdict.ALREADY,
        CancelVerdict.UNKNOWN,
        CancelVerdict.UNKNOWN,
        CancelVerdict.REQUESTED,
    ]
    before = [await record(broker, job_id) for job_id in (done, letter)]
    equal(await broker.cancel(ids, now=T0 + 1), expected, "verdicts")
    equal([await record(broker, job_id) for job_id in (done, letter)], before, "final records")


@check
async def a_cancel_after_the_result_changes_nothing(broker: Broker) -> None:
    lease = await running(broker)
    await committed(broker, settle.complete(lease, output=b'"made it"', now=T0), now=T0)
    before = await in_state(broker, lease.job.id, State.SUCCEEDED)
    equal(await broker.cancel([lease.job.id], now=T0), [CancelVerdict.FINAL], "a cancel after it")
    equal(await record(broker, lease.job.id), before, "record")


@check
async def a_cancelled_running_job_ends_cancelled_and_stays_so(broker: Broker) -> None:
    lease = await running(broker)
    await broker.cancel([lease.job.id], now=T0)
    await committed(broker, settle.cancel(lease, now=T0 + 1), now=T0 + 1)
    before = await in_state(broker, lease.job.id, State.CANCELLED)
    late = settle.complete(lease, output=b"1", now=T0 + 2)
    equal(await broker.commit([late], now=T0 + 2), [False], "a late result")
    equal(await broker.cancel([lease.job.id], now=T0 + 2), [CancelVerdict.ALREADY], "a second cancel")
    equal(await record(broker, lease.job.id), before, "record")


@check
async def whatever_becomes_of_a_job_to_be_cancelled_ends_it_cancelled(broker: Broker) -> None:
    for number in range(len(every_end(await running(broker), T0))):
        lease = await running(broker, task=f"t{number}")
        await broker.cancel([lease.job.id], now=T0)
        transition = every_end(lease, T0 + 1)[number]
        await committed(broker, transition, now=T0 + 1)
        standing = (await in_state(broker, lease.job.id, State.CANCELLED)).standing
        expected = standing_after(lease, settle.cancelled_instead(transition, lease))
        equal(standing, expected._replace(cancel_requested=True), f"standing after {transition.event.value}")
        equal(await leased_ids(broker, task=f"t{number}", now=T0 + 500), [], "leases")


@check
@needs("given_time")
async def the_time_of_the_first_cancel_counts_until_the_job_runs_no_more(broker: Broker) -> None:
    lease = await running(broker)
    equal((await record(broker, lease.job.id)).standing.cancel_at, None, "cancel_at before")
    for second in (1, 2):
        await broker.cancel([lease.job.id], now=T0 + second)
    equal((await record(broker, lease.job.id, now=T0 + 2)).standing.cancel_at, T0 + 1, "cancel_at")
    await committed(broker, settle.cancel(lease, now=T0 + 3), now=T0 + 3)
    equal((await record(broker, lease.job.id, now=T0 + 3)).standing.cancel_at, None, "cancel_at at the end")
    waiting = await stored(broker, now=T0 + 3)
    await broker.cancel([waiting.id], now=T0 + 4)
    equal((await record(broker, waiting.id, now=T0 + 4)).standing.cancel_at, None, "of one that waited")
