"""Checks of settling: what was decided is stored once, by the current holder, and a final state stays."""

from forebay.conformance.fixtures import (
    BOOM,
    LEASE_S,
    POLICY,
    T0,
    TASK,
    a_job,
    committed,
    equal,
    every_end,
    failure,
    in_state,
    leased,
    record,
    running,
    standing_after,
    stored,
)
from forebay.conformance.suite import check, needs
from forebay.core import settle
from forebay.core.degraded import FALLBACK, FULL
from forebay.core.job import Lease
from forebay.core.lifecycle import State
from forebay.ports.broker import Broker


@check
async def every_decision_is_stored_as_it_is(broker: Broker) -> None:
    for number in range(len(every_end(await running(broker), T0))):
        lease = await running(broker, task=f"t{number}")
        transition = every_end(lease._replace(worker="w/t/1"), T0 + 2)[number]
        await committed(broker, transition, now=T0 + 2)
        found = await record(broker, lease.job.id, now=T0 + 2)
        equal(found.standing, standing_after(lease, transition), f"standing after {transition.event.value}")
        equal(found.job, lease.job, "job")


@check
async def a_result_below_what_was_asked_for_says_so(broker: Broker) -> None:
    for level in (FULL, 1, 7, FALLBACK):
        lease = await running(broker)
        done = settle.complete(lease, output=b"1", now=T0)._replace(degraded=level)
        await committed(broker, done, now=T0)
        found = await in_state(broker, lease.job.id, State.SUCCEEDED)
        equal(found.standing.degraded, level, "degraded")
        flags = (found.standing.suspect, found.standing.cancel_requested)
        equal(flags, (False, False), "suspect and cancel_requested beside it")


@check
async def a_second_commit_changes_nothing(broker: Broker) -> None:
    for number in range(len(every_end(await running(broker), T0))):
        lease = await running(broker, task=f"t{number}")
        await committed(broker, every_end(lease, T0)[number], now=T0)
        before = await record(broker, lease.job.id)
        again = await broker.commit(every_end(lease, T0 + 1), now=T0 + 1)
        equal(again, [False] * len(again), "answers to later commits under the same fence")
        equal(await record(broker, lease.job.id), before, "record")


@check
async def the_same_transition_twice_in_one_call_is_applied_once(broker: Broker) -> None:
    lease = await running(broker)
    done = settle.complete(lease, output=b"1", now=T0)
    equal(await broker.commit([done, done, failure(lease, now=T0)], now=T0), [True, False, False], "answers")
    depth = await broker.depth(TASK, now=T0)
    equal((depth.running, depth.open, depth.bytes), (0, 0, 0), "running, open and bytes")


@check
async def an_old_fence_cannot_commit(broker: Broker) -> None:
    old = await running(broker)
    await committed(broker, settle.lose(old, error=BOOM, now=T0), now=T0)
    new = (await leased(broker))[0]
    before = await record(broker, new.job.id)
    stale = every_end(old, T0)
    equal(await broker.commit(stale, now=T0), [False] * len(stale), "answers to the old holder")
    equal(await record(broker, new.job.id), before, "record")
    await committed(broker, settle.complete(new, output=b'"new"', now=T0), now=T0)
    equal(await broker.commit(stale, now=T0), [False] * len(stale), "answers after the end")
    equal((await in_state(broker, new.job.id, State.SUCCEEDED)).standing.output, b'"new"', "output")


@check
async def the_fence_grows_with_every_grant(broker: Broker) -> None:
    job = await stored(broker)
    fences: list[int] = []
    for _ in range(5):
        lease = (await leased(broker))[0]
        fences.append(lease.fence)
        equal((await record(broker, job.id)).standing.fence, lease.fence, "fence in the record")
        await committed(broker, settle.release(lease, policy=POLICY, now=T0), now=T0)
        equal((await record(broker, job.id)).standing.fence, lease.fence, "fence after the hand-back")
    equal(fences, sorted(set(fences)), "fences")


@check
async def a_fence_never_given_cannot_commit(broker: Broker) -> None:
    lease = await running(broker)
    done = settle.complete(lease, output=b"1", now=T0)
    others = [done._replace(fence=fence) for fence in (0, -1, lease.fence + 1, 2**62)]
    equal(await broker.commit(others, now=T0), [False] * 4, "answers")
    unknown = [done._replace(job_id=i) for i in ("00000000-0000-7000-8000-000000000000", "", "x" * 36)]
    equal(await broker.commit(unknown, now=T0), [False] * 3, "answers for unknown ids")
    await in_state(broker, lease.job.id, State.RUNNING)


@check
async def a_waiting_job_takes_no_commit(broker: Broker) -> None:
    job = await stored(broker)
    lease = Lease(job, fence=0, attempt=0, until=T0 + 30, worker="w", leased_at=T0)
    ends = every_end(lease, T0)
    equal(await broker.commit(ends, now=T0), [False] * len(ends), "answers")
    await in_state(broker, job.id, State.QUEUED)


@check
@needs("given_time")
async def a_lapsed_lease_may_commit_while_nobody_took_over(broker: Broker) -> None:
    lease = await running(broker)
    late = T0 + LEASE_S * 10
    await broker.sweep(limit=10, now=late)
    await committed(broker, settle.complete(lease, output=b'"late"', now=late), now=late)
    found = await in_state(broker, lease.job.id, State.SUCCEEDED, now=late)
    equal(found.standing.output, b'"late"', "output")


@check
async def a_job_handed_back_is_not_its_old_holders_any_more(broker: Broker) -> None:
    lease = await running(broker)
    await committed(broker, settle.lose(lease, error=BOOM, now=T0), now=T0)
    late = settle.complete(lease, output=b'"late"', now=T0)
    equal(await broker.commit([late], now=T0), [False], "answer")
    await in_state(broker, lease.job.id, State.QUEUED)


@check
async def a_released_job_keeps_its_attempt_and_its_place(broker: Broker) -> None:
    first = await running(broker)
    second = await stored(broker, now=T0 + 1)
    await committed(broker, settle.release(first, policy=POLICY, now=T0 + 2), now=T0 + 2)
    standing = (await in_state(broker, first.job.id, State.QUEUED)).standing
    equal((standing.attempt, standing.releases, standing.ready_at), (0, 1, T0), "attempt, releases, ready_at")
    equal((standing.lease_until, standing.finished_at), (None, None), "times")
    leases = await leased(broker, now=T0 + 3)
    equal(sorted(lease.job.id for lease in leases), sorted([first.job.id, second.id]), "leased")
    again = next(lease for lease in leases if lease.job.id == first.job.id)
    equal((again.attempt, again.fence, again.releases), (1, 2, 1), "attempt, fence and releases")
    if broker.capabilities.ordered:
        equal(leases[0].job.id, first.job.id, "first in line")


@check
@needs("given_time")
async def what_a_job_went_through_stays_with_it(broker: Broker) -> None:
    lease = await running(broker, attempts_max=10)
    for number in range(1, 4):
        await committed(broker, settle.lose(lease, error=BOOM, now=T0 + number), now=T0 + number)
        lease = (await leased(broker, now=T0 + number))[0]
        equal((lease.attempt, lease.suspect, len(lease.attempts)), (number + 1, True, number), "lease")
    await committed(broker, settle.suspect(lease, error=BOOM, policy=POLICY, now=T0 + 5), now=T0 + 5)
    lease = (await leased(broker, now=T0 + 5))[0]
    equal((lease.attempt, lease.suspect, lease.releases), (4, True, 1), "after being a suspect")
    transition = settle.die(lease, error=BOOM, policy=POLICY, now=T0 + 6, jitter=0.0)
    await committed(broker, transition, now=T0 + 6)
    await broker.sweep(limit=10, now=T0 + 600)
    lease = (await leased(broker, now=T0 + 600))[0]
    equal((lease.attempt, lease.suspect, lease.deaths, lease.releases), (5, True, 1, 1), "after a death")
    equal(lease.attempts, transition.attempts, "attempts")


@check
@needs("given_time")
async def attempts_used_up_end_as_a_dead_letter(broker: Broker) -> None:
    job = await stored(broker, attempts_max=3)
    now = T0
    for attempt in (1, 2, 3):
        lease = (await leased(broker, now=now))[0]
        equal(lease.attempt, attempt, "attempt")
        await committed(broker, failure(lease, now=now), now=now)
        now += 100
        await broker.sweep(limit=10, now=now)
    found = await in_state(broker, job.id, State.DEAD, now=now)
    equal((found.standing.attempt, found.standing.error), (3, BOOM), "attempt and error")
    equal([a.attempt for a in found.standing.attempts], [1, 2, 3], "attempts")
    equal(await leased(broker, now=now), [], "leases of a dead letter")
    equal((await broker.depth(TASK, now=now)).dead, 1, "dead in depth")


@check
async def success_forgets_the_error_before_it(broker: Broker) -> None:
    lease = await running(broker)
    await committed(broker, settle.lose(lease, error=BOOM, now=T0), now=T0)
    lease = (await leased(broker))[0]
    await committed(broker, settle.complete(lease, output=b"1", now=T0), now=T0)
    standing = (await in_state(broker, lease.job.id, State.SUCCEEDED)).standing
    equal((standing.error, standing.suspect), (None, False), "error and suspect")
    equal(len(standing.attempts), 1, "attempts")


@check
async def many_transitions_are_answered_in_order(broker: Broker) -> None:
    jobs = [a_job(broker) for _ in range(30)]
    await broker.enqueue(jobs, now=T0)
    leases = {lease.job.id: lease for lease in await leased(broker)}
    ordered = [leases[job.id] for job in jobs]
    sent = [
        settle.complete(lease if n % 3 else lease._replace(fence=9), output=b"%d" % n, now=T0)
        for n, lease in enumerate(ordered)
    ]
    equal(await broker.commit(sent, now=T0), [bool(n % 3) for n in range(30)], "answers")
    for n, job in enumerate(jobs):
        state = State.SUCCEEDED if n % 3 else State.RUNNING
        found = await in_state(broker, job.id, state)
        equal(found.standing.output, b"%d" % n if n % 3 else None, "output")
