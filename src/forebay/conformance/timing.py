"""Checks of time: what is due, what is too late and what is overdue, at the second and just beside it."""

from forebay.conformance.fixtures import (
    BOOM,
    LEASE_S,
    POLICY,
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
from forebay.core.job import JobError, Lease, Sweep
from forebay.core.lifecycle import State
from forebay.ports.broker import Broker

JUST = 0.001  # seconds beside a boundary


@check
@needs("given_time")
async def a_scheduled_job_becomes_ready_at_its_time(broker: Broker) -> None:
    job = await stored(broker, run_at=T0 + 10)
    equal(await broker.sweep(limit=10, now=T0 + 10 - JUST), Sweep(), "just before")
    equal(await leased(broker, now=T0 + 10), [], "leases before the sweep")
    equal(await broker.sweep(limit=10, now=T0 + 10), Sweep(promoted=(job.id,)), "at its time")
    standing = (await in_state(broker, job.id, State.QUEUED)).standing
    equal(standing.ready_at, T0 + 10, "ready_at")
    equal(await leased_ids(broker, now=T0 + 10), [job.id], "leases")


@check
@needs("given_time")
async def a_job_promoted_late_keeps_the_time_it_was_due(broker: Broker) -> None:
    job = await stored(broker, run_at=T0 + 10)
    equal((await broker.sweep(limit=10, now=T0 + 500)).promoted, (job.id,), "promoted")
    equal((await record(broker, job.id, now=T0 + 500)).standing.ready_at, T0 + 10, "ready_at")
    equal((await broker.depth(TASK, now=T0 + 500)).oldest_at, T0 + 10, "oldest_at")


@check
@needs("given_time")
async def a_failed_job_waits_out_its_backoff(broker: Broker) -> None:
    lease = await running(broker)
    transition = failure(lease, now=T0)
    await committed(broker, transition, now=T0)
    await in_state(broker, lease.job.id, State.RETRYING)
    due = transition.ready_at
    equal((await broker.sweep(limit=10, now=due - JUST)).promoted, (), "just before")
    equal(await leased(broker, now=due - JUST), [], "leases while it waits")
    equal((await broker.sweep(limit=10, now=due)).promoted, (lease.job.id,), "at its time")
    equal([again.attempt for again in await leased(broker, now=due)], [2], "attempts")


@check
@needs("given_time")
async def a_deferred_job_waits_for_its_time(broker: Broker) -> None:
    lease = await running(broker)
    transition = settle.defer(lease, until=T0 + 100, policy=POLICY, now=T0)
    await committed(broker, transition, now=T0)
    await in_state(broker, lease.job.id, State.SCHEDULED)
    equal((await broker.sweep(limit=10, now=T0 + 100 - JUST)).promoted, (), "just before")
    equal((await broker.sweep(limit=10, now=T0 + 100)).promoted, (lease.job.id,), "at its time")
    equal([again.attempt for again in await leased(broker, now=T0 + 100)], [1], "attempts")


@check
@needs("given_time")
async def a_waiting_job_expires_when_its_ttl_has_passed(broker: Broker) -> None:
    job = await stored(broker, expires_at=T0 + 10)
    equal(await broker.sweep(limit=10, now=T0 + 10 - JUST), Sweep(), "just before")
    equal(await broker.sweep(limit=10, now=T0 + 10), Sweep(expired=(job.id,)), "at its time")
    standing = (await in_state(broker, job.id, State.EXPIRED)).standing
    equal(standing.finished_at, T0 + 10, "finished_at")
    equal(standing.error, JobError("ttl_passed", "its ttl passed while it waited"), "error")
    equal(await broker.sweep(limit=10, now=T0 + 11), Sweep(), "a second sweep")


@check
@needs("given_time")
async def a_waiting_job_expires_when_its_deadline_has_passed(broker: Broker) -> None:
    job = await stored(broker, deadline_at=T0 + 10)
    equal(await broker.sweep(limit=10, now=T0 + 10 - JUST), Sweep(), "just before")
    equal(await broker.sweep(limit=10, now=T0 + 10), Sweep(expired=(job.id,)), "at its time")
    standing = (await in_state(broker, job.id, State.EXPIRED)).standing
    error = JobError("deadline_passed", "its deadline passed while it waited")
    equal(standing.error, error, "error")


@check
@needs("given_time")
async def the_earlier_of_ttl_and_deadline_ends_a_job(broker: Broker) -> None:
    ttl = await stored(broker, expires_at=T0 + 10, deadline_at=T0 + 20)
    deadline = await stored(broker, expires_at=T0 + 20, deadline_at=T0 + 10)
    both = await stored(broker, expires_at=T0 + 10, deadline_at=T0 + 10)
    equal((await broker.sweep(limit=10, now=T0 + 10)).expired, (ttl.id, deadline.id, both.id), "expired")
    for job, code in ((ttl, "ttl_passed"), (deadline, "deadline_passed"), (both, "deadline_passed")):
        error = (await record(broker, job.id, now=T0 + 10)).standing.error
        equal(None if error is None else error.code, code, "code")


@check
@needs("given_time")
async def every_waiting_state_can_expire(broker: Broker) -> None:
    retrying = await running(broker, expires_at=T0 + 4)
    await committed(broker, failure(retrying, now=T0), now=T0)
    deferred = await running(broker, expires_at=T0 + 4, task="d")
    await committed(broker, settle.defer(deferred, until=T0 + 9, policy=POLICY, now=T0), now=T0)
    queued = await stored(broker, expires_at=T0 + 4)
    scheduled = await stored(broker, expires_at=T0 + 4, run_at=T0 + 2)
    ids = [retrying.job.id, deferred.job.id, queued.id, scheduled.id]
    swept = await broker.sweep(limit=10, now=T0 + 4)
    equal((swept.expired, swept.promoted), (tuple(sorted(ids)), ()), "expired and promoted")
    for job_id in ids:
        await in_state(broker, job_id, State.EXPIRED, now=T0 + 4)
    depth = await broker.depth(TASK, now=T0 + 4)
    equal((depth.open, depth.bytes, depth.oldest_at), (0, 0, None), "open, bytes and oldest")
    standing = (await record(broker, retrying.job.id, now=T0 + 4)).standing
    equal((standing.attempt, len(standing.attempts)), (1, 1), "what it went through")


@check
@needs("given_time")
async def a_job_past_its_time_is_never_granted(broker: Broker) -> None:
    ttl = await stored(broker, expires_at=T0 + 10)
    deadline = await stored(broker, deadline_at=T0 + 10)
    good = await stored(broker, expires_at=T0 + 11, deadline_at=T0 + 11)
    equal(await leased_ids(broker, now=T0 + 10), [good.id], "leased at the boundary, before any sweep")
    for job in (ttl, deadline):
        await in_state(broker, job.id, State.QUEUED, now=T0 + 10)
    depth = await broker.depth(TASK, now=T0 + 10)
    equal((depth.queued, depth.oldest_at), (2, T0), "queued and oldest")
    equal(await broker.position(deadline.id, now=T0 + 10), 2, "position")
    equal((await broker.sweep(limit=10, now=T0 + 10)).expired, (ttl.id, deadline.id), "expired by the sweep")
    equal((await broker.depth(TASK, now=T0 + 10)).queued, 0, "queued")


@check
@needs("given_time")
async def a_job_is_granted_until_just_before_its_time(broker: Broker) -> None:
    job = await stored(broker, expires_at=T0 + 10, deadline_at=T0 + 10)
    equal(await leased_ids(broker, now=T0 + 10 - JUST), [job.id], "leased")


@check
@needs("given_time")
async def jobs_past_their_time_do_not_use_up_the_limit(broker: Broker) -> None:
    for _ in range(50):
        await stored(broker, expires_at=T0 + 5, priority=0)
    good = await stored(broker)
    equal(await leased_ids(broker, limit=1, now=T0 + 5), [good.id], "leased")


@check
@needs("given_time")
async def a_job_past_its_time_can_still_be_cancelled(broker: Broker) -> None:
    job = await stored(broker, expires_at=T0 + 5)
    await leased(broker, now=T0 + 5)
    await broker.cancel([job.id], now=T0 + 6)
    await in_state(broker, job.id, State.CANCELLED, now=T0 + 6)
    equal((await broker.sweep(limit=10, now=T0 + 7)).expired, (), "expired")
    equal((await broker.depth(TASK, now=T0 + 7)).queued, 0, "queued")


@check
@needs("given_time")
async def a_running_job_does_not_expire_by_the_sweep(broker: Broker) -> None:
    lease = await running(broker, expires_at=T0 + 5, deadline_at=T0 + 6)
    equal((await broker.sweep(limit=10, now=T0 + 7)).expired, (), "expired")
    await in_state(broker, lease.job.id, State.RUNNING, now=T0 + 7)
    await committed(broker, settle.release(lease, policy=POLICY, now=T0 + 7), now=T0 + 7)
    equal(await leased(broker, now=T0 + 7), [], "leases after the hand-back")
    equal((await broker.sweep(limit=10, now=T0 + 7)).expired, (lease.job.id,), "expired once it waits")


@check
@needs("given_time")
async def a_job_stored_past_its_time_is_never_granted(broker: Broker) -> None:
    job = await stored(broker, expires_at=T0, run_at=T0 - 5)
    equal(await leased(broker), [], "leases")
    equal((await broker.sweep(limit=10, now=T0)).expired, (job.id,), "expired")


@check
@needs("given_time")
async def an_overdue_lease_is_returned_unchanged_until_it_is_settled(broker: Broker) -> None:
    lease = await running(broker)
    equal((await broker.sweep(limit=10, now=T0 + LEASE_S - JUST)).overdue, (), "just before")
    for _ in range(2):
        equal((await broker.sweep(limit=10, now=T0 + LEASE_S)).overdue, (lease,), "at its end")
    await in_state(broker, lease.job.id, State.RUNNING)
    lost = settle.lose(lease, error=BOOM, now=T0 + LEASE_S)
    await committed(broker, lost, now=T0 + LEASE_S)
    equal((await broker.sweep(limit=10, now=T0 + LEASE_S)).overdue, (), "after it was settled")
    again: Lease = (await leased(broker, now=T0 + LEASE_S))[0]
    equal((again.attempt, again.fence, again.suspect), (2, 2, True), "the next lease")


@check
@needs("given_time")
async def an_overdue_lease_tells_all_it_knows(broker: Broker) -> None:
    first = await running(broker, attempts_max=9)
    death = settle.die(first, error=BOOM, policy=POLICY, now=T0, jitter=0.0)
    await committed(broker, death, now=T0)
    await broker.sweep(limit=10, now=T0 + 60)
    second = (await leased(broker, now=T0 + 60))[0]
    await broker.cancel([second.job.id], now=T0 + 61)
    overdue = (await broker.sweep(limit=10, now=T0 + 60 + LEASE_S)).overdue
    equal(overdue, (second._replace(cancel_requested=True),), "overdue")
    equal((second.deaths, second.suspect, second.attempts), (1, True, death.attempts), "what it went through")


@check
@needs("given_time")
async def a_sweep_does_the_earliest_first_and_not_more_than_its_limit(broker: Broker) -> None:
    late = [await stored(broker, run_at=T0 + 20 - n) for n in range(5)]
    ends = [await stored(broker, expires_at=T0 + 20 - n, priority=9) for n in range(5)]
    leases: list[Lease] = []
    for n in range(5):
        job = await stored(broker, task="run")
        leases += await broker.lease("run", limit=1, lease_s=20.0 - n, worker="w", now=T0)
        equal(leases[-1].job.id, job.id, "leased")
    swept = await broker.sweep(limit=2, now=T0 + 20)
    equal(swept.promoted, (late[4].id, late[3].id), "promoted")
    equal(swept.expired, (ends[4].id, ends[3].id), "expired")
    equal(swept.overdue, (leases[4], leases[3]), "overdue")
    swept = await broker.sweep(limit=100, now=T0 + 20)
    equal(swept.promoted, (late[2].id, late[1].id, late[0].id), "promoted after it")
    equal(swept.expired, (ends[2].id, ends[1].id, ends[0].id), "expired after it")
    equal(swept.overdue, tuple(reversed(leases)), "overdue after it")
    equal(await broker.sweep(limit=0, now=T0 + 20), Sweep(), "sweep with limit 0")


@check
@needs("given_time")
async def what_is_due_and_too_late_at_once_expires(broker: Broker) -> None:
    job = await stored(broker, run_at=T0 + 10, expires_at=T0 + 10)
    equal(await broker.sweep(limit=10, now=T0 + 10), Sweep(expired=(job.id,)), "swept")
    await in_state(broker, job.id, State.EXPIRED, now=T0 + 10)


@check
@needs("given_time")
async def time_that_runs_backwards_is_clamped(broker: Broker) -> None:
    await broker.sweep(limit=10, now=T0 + 100)
    job = await stored(broker, now=T0, run_at=T0 + 50)
    await in_state(broker, job.id, State.QUEUED)
    lease = (await leased(broker, now=T0))[0]
    equal((lease.leased_at, lease.until), (T0 + 100, T0 + 100 + LEASE_S), "times of the lease")
