"""Checks of leasing: who gets which job, in which order, until when, and how a lease is renewed."""

from forebay.conformance.fixtures import (
    BOOM,
    LEASE_S,
    POLICY,
    T0,
    TASK,
    WORKER,
    a_job,
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
from forebay.core.job import AGEING_S, CancelVerdict, Claim, Hold, Lease
from forebay.core.lifecycle import State
from forebay.ports.broker import Broker


@check
@needs("given_time")
async def a_lease_holds_all_a_worker_needs(broker: Broker) -> None:
    job = await stored(broker, metadata=b'{"a":"b"}', tenant="acme", deadline_at=T0 + 99)
    expected = Lease(
        job, fence=1, attempt=1, until=T0 + 3 + LEASE_S, worker=WORKER, leased_at=T0 + 3, ready_at=T0
    )
    equal(await leased(broker, now=T0 + 3), [expected], "leases")
    standing = (await in_state(broker, job.id, State.RUNNING, now=T0 + 3)).standing
    equal((standing.attempt, standing.fence), (1, 1), "attempt and fence")
    equal((standing.lease_until, standing.started_at), (T0 + 3 + LEASE_S, T0 + 3), "times")
    equal((standing.worker, standing.ready_at), (WORKER, T0), "worker and ready_at")


@check
async def the_attempt_is_counted_when_leased(broker: Broker) -> None:
    lease = await running(broker)
    equal((await record(broker, lease.job.id)).standing.attempt, 1, "attempt of the first try")
    await committed(broker, settle.lose(lease, error=BOOM, now=T0), now=T0)
    second = (await leased(broker))[0]
    equal((second.attempt, second.fence), (2, 2), "attempt and fence of the second grant")


@check
async def a_leased_job_is_not_leased_again(broker: Broker) -> None:
    await running(broker)
    equal(await leased(broker, now=T0 + 1), [], "leases")


@check
async def a_lapsed_lease_is_not_given_to_another_before_it_was_settled(broker: Broker) -> None:
    await running(broker)
    equal(await leased(broker, now=T0 + LEASE_S + 1), [], "leases")


@check
async def the_limit_holds(broker: Broker) -> None:
    for _ in range(5):
        await stored(broker)
    equal(len(await leased(broker, limit=0)), 0, "leases at limit 0")
    equal(len(await leased(broker, limit=-1)), 0, "leases at limit -1")
    equal(len(await leased(broker, limit=2)), 2, "leases at limit 2")
    equal(len(await leased(broker, limit=100)), 3, "leases of the rest")
    equal(len(await leased(broker, limit=100)), 0, "leases of nothing")


@check
async def a_task_gets_its_own_jobs_only(broker: Broker) -> None:
    mine = await stored(broker, task="a")
    await stored(broker, task="A")
    await stored(broker, task="a ")
    await stored(broker, task="ab")
    equal(await leased_ids(broker, task="a"), [mine.id], "leased of task a")
    equal(await leased_ids(broker, task="never seen"), [], "leased of a task never seen")


@check
@needs("ordered")
async def equal_jobs_run_in_the_order_of_their_ids(broker: Broker) -> None:
    jobs = [a_job(broker) for _ in range(50)]
    await broker.enqueue(jobs[25:], now=T0)
    await broker.enqueue(jobs[:25][::-1], now=T0)
    expected = sorted(job.id for job in jobs)
    equal(await leased_ids(broker, limit=30), expected[:30], "the first 30")
    equal(await leased_ids(broker, limit=30), expected[30:], "the rest")


@check
@needs("ordered")
async def earlier_ready_goes_first(broker: Broker) -> None:
    late = await stored(broker, run_at=T0 - 1)
    early = await stored(broker, run_at=T0 - 2)
    equal(await leased_ids(broker), [early.id, late.id], "order")


@check
@needs("ordered")
async def more_urgent_goes_first(broker: Broker) -> None:
    jobs = [await stored(broker, priority=priority) for priority in (5, 9, 0, 8, 2)]
    expected = [job.id for job in sorted(jobs, key=lambda job: job.priority)]
    equal(await leased_ids(broker), expected, "order")


@check
@needs("ordered")
async def one_level_is_worth_a_minute_of_waiting(broker: Broker) -> None:
    late = await stored(broker, priority=6, run_at=T0 - AGEING_S + 0.001)  # a moment short of a minute
    normal = await stored(broker, priority=5, run_at=T0)
    early = await stored(broker, priority=6, run_at=T0 - AGEING_S - 0.001)
    tie = await stored(broker, priority=6, run_at=T0 - AGEING_S)  # equal key: the id decides
    far = await stored(broker, priority=9, run_at=T0 - 4 * AGEING_S - 1)
    equal(await leased_ids(broker), [far.id, early.id, normal.id, tie.id, late.id], "order")


@check
@needs("ordered")
async def a_long_waiting_job_is_not_starved_by_urgent_ones(broker: Broker) -> None:
    low = await stored(broker, priority=9)
    for step in range(12):
        now = T0 + step * AGEING_S
        await stored(broker, priority=0, now=now)
        if (await leased_ids(broker, limit=1, now=now)) == [low.id]:
            equal(step >= 9, True, "it waited for nine levels")
            return
    raise AssertionError("the job of the lowest priority never ran")


@check
async def a_paused_task_grants_nothing_and_still_takes_jobs(broker: Broker) -> None:
    job = await stored(broker)
    other = await stored(broker, task="other")
    await broker.pause(TASK, paused=True, now=T0)
    equal(await leased(broker), [], "leases while paused")
    second = await stored(broker)
    equal(await leased_ids(broker, task="other"), [other.id], "leases of another task")
    equal((await broker.depth(TASK, now=T0)).paused, True, "paused in depth")
    load = broker.load_now(TASK, now=T0)
    equal(load is None or load.paused, True, "paused in load")
    await broker.pause(TASK, paused=True, now=T0)
    await broker.pause(TASK, paused=False, now=T0)
    equal((await broker.depth(TASK, now=T0)).paused, False, "paused after resume")
    equal(sorted(await leased_ids(broker)), [job.id, second.id], "leases after resume")


@check
async def a_task_can_be_paused_before_its_first_job(broker: Broker) -> None:
    await broker.pause(TASK, paused=True, now=T0)
    await stored(broker)
    equal(await leased(broker), [], "leases")
    await broker.pause(TASK, paused=False, now=T0)
    await broker.pause(TASK, paused=False, now=T0)
    equal(len(await leased(broker)), 1, "leases after resume")


@check
async def a_draining_task_says_so_and_still_grants(broker: Broker) -> None:
    job = await stored(broker)
    await broker.drain(TASK, draining=True, now=T0)
    for _ in range(2):
        equal((await broker.depth(TASK, now=T0)).draining, True, "draining in depth")
        load = broker.load_now(TASK, now=T0)
        equal(load is None or load.draining, True, "draining in load")
        equal((await broker.depth("other", now=T0)).draining, False, "draining of another task")
        await broker.pause(TASK, paused=True, now=T0)  # the two know nothing of each other
        await broker.pause(TASK, paused=False, now=T0)
    late = await stored(broker)
    equal(sorted(await leased_ids(broker)), [job.id, late.id], "leases while it drains")
    await broker.drain(TASK, draining=False, now=T0)
    equal((await broker.depth(TASK, now=T0)).draining, False, "draining after resume")
    load = broker.load_now(TASK, now=T0)
    equal(load is None or not load.draining, True, "draining in load after resume")


@check
async def a_paused_task_may_finish_what_runs(broker: Broker) -> None:
    lease = await running(broker)
    await broker.pause(TASK, paused=True, now=T0)
    holds = await broker.extend([Claim(lease.job.id, lease.fence)], lease_s=LEASE_S, now=T0 + 1)
    equal(holds, [Hold.HELD], "renewal")
    await committed(broker, settle.complete(lease, output=b"1", now=T0 + 1), now=T0 + 1)


@check
@needs("given_time")
async def a_renewal_moves_the_end_and_nothing_else(broker: Broker) -> None:
    lease = await running(broker)
    before = await record(broker, lease.job.id)
    holds = await broker.extend([Claim(lease.job.id, lease.fence)], lease_s=40.0, now=T0 + 20)
    equal(holds, [Hold.HELD], "holds")
    after = await record(broker, lease.job.id, now=T0 + 20)
    equal(after, before._replace(standing=before.standing._replace(lease_until=T0 + 60)), "record")
    equal((await broker.sweep(limit=10, now=T0 + 59)).overdue, (), "overdue before the new end")
    equal(len((await broker.sweep(limit=10, now=T0 + 60)).overdue), 1, "overdue at the new end")


@check
@needs("given_time")
async def a_renewal_may_shorten_a_lease(broker: Broker) -> None:
    lease = await running(broker)
    await broker.extend([Claim(lease.job.id, lease.fence)], lease_s=5.0, now=T0 + 1)
    equal(len((await broker.sweep(limit=10, now=T0 + 6)).overdue), 1, "overdue")


@check
@needs("given_time")
async def a_renewal_cannot_raise_the_dead(broker: Broker) -> None:
    lease = await running(broker)
    claim = Claim(lease.job.id, lease.fence, b'{"share":0.5}')
    just_before = T0 + LEASE_S - 0.001
    equal(await broker.extend([claim], lease_s=1.0, now=just_before), [Hold.HELD], "just before the end")
    end = just_before + 1.0
    later = claim._replace(progress=b'{"share":0.9}')
    equal(await broker.extend([later], lease_s=LEASE_S, now=end), [Hold.LOST], "at the end")
    equal(await broker.extend([later], lease_s=LEASE_S, now=end + 9), [Hold.LOST], "after the end")
    standing = (await record(broker, lease.job.id, now=end + 9)).standing
    equal((standing.lease_until, standing.progress), (end, claim.progress), "end and progress")


@check
async def a_stale_fence_cannot_renew(broker: Broker) -> None:
    old = await running(broker)
    await committed(broker, settle.release(old, policy=POLICY, now=T0), now=T0)
    waiting = await broker.extend([Claim(old.job.id, old.fence)], lease_s=LEASE_S, now=T0)
    equal(waiting, [Hold.LOST], "while it waits")
    new = (await leased(broker))[0]
    claims = [Claim(old.job.id, old.fence, b'"old"'), Claim(new.job.id, new.fence, b'"new"')]
    equal(await broker.extend(claims, lease_s=LEASE_S, now=T0), [Hold.LOST, Hold.HELD], "holds")
    equal((await record(broker, new.job.id)).standing.progress, b'"new"', "progress")
    future = [Claim(new.job.id, new.fence + 1), Claim(new.job.id, 0), Claim(new.job.id, -1)]
    equal(await broker.extend(future, lease_s=LEASE_S, now=T0), [Hold.LOST] * 3, "fences never given")


@check
async def nobody_can_renew_what_is_not_there_or_has_ended(broker: Broker) -> None:
    lease = await running(broker)
    await committed(broker, settle.complete(lease, output=b"1", now=T0), now=T0)
    waiting = await stored(broker)
    claims = [
        Claim(lease.job.id, lease.fence),
        Claim(waiting.id, 0),
        Claim("00000000-0000-7000-8000-000000000000", 1),
        Claim("no id at all", 1),
    ]
    equal(await broker.extend(claims, lease_s=LEASE_S, now=T0), [Hold.LOST] * 4, "holds")


@check
@needs("given_time")
async def progress_is_kept_until_it_is_replaced_and_goes_with_the_lease(broker: Broker) -> None:
    lease = await running(broker)
    claim = Claim(lease.job.id, lease.fence)
    for sent, kept in ((None, None), (b'"1"', b'"1"'), (None, b'"1"'), (b'"2"', b'"2"')):
        await broker.extend([claim._replace(progress=sent)], lease_s=LEASE_S, now=T0)
        equal((await record(broker, lease.job.id)).standing.progress, kept, f"progress after {sent!r}")
    await committed(broker, failure(lease, now=T0), now=T0)
    equal((await record(broker, lease.job.id)).standing.progress, None, "progress while it waits")
    await broker.sweep(limit=10, now=T0 + 60)
    await leased(broker, now=T0 + 60)
    found = await in_state(broker, lease.job.id, State.RUNNING, now=T0 + 60)
    equal(found.standing.progress, None, "progress of the next try")
    equal(found.standing.error, BOOM, "error of the last try, while the next one runs")


@check
@needs("given_time")
async def a_checkpoint_is_given_to_the_next_try_until_the_job_ends(broker: Broker) -> None:
    lease = await running(broker)
    equal(lease.checkpoint, None, "checkpoint of the first try")
    claim = Claim(lease.job.id, lease.fence)
    for sent, kept in ((None, None), (b"[1]", b"[1]"), (None, b"[1]"), (b"[2]", b"[2]")):
        await broker.extend([claim._replace(checkpoint=sent)], lease_s=LEASE_S, now=T0)
        equal((await record(broker, lease.job.id)).standing.checkpoint, kept, f"checkpoint after {sent!r}")
    stale = [claim._replace(fence=claim.fence + 1, checkpoint=b"[3]")]
    await broker.extend(stale, lease_s=LEASE_S, now=T0)
    await committed(broker, failure(lease, now=T0), now=T0)
    equal((await record(broker, lease.job.id)).standing.checkpoint, b"[2]", "checkpoint while it waits")
    await broker.sweep(limit=10, now=T0 + 60)
    (again,) = await leased(broker, now=T0 + 60)
    equal(again.checkpoint, b"[2]", "checkpoint of the next try")
    newer = failure(again, now=T0 + 60)._replace(checkpoint=b"[4]")
    await committed(broker, newer, now=T0 + 60)
    equal((await record(broker, lease.job.id)).standing.checkpoint, b"[4]", "checkpoint of a transition")
    await broker.sweep(limit=10, now=T0 + 120)
    (last,) = await leased(broker, now=T0 + 120)
    equal(last.checkpoint, b"[4]", "checkpoint that came with the end of the try before")
    await committed(broker, settle.complete(last, output=b"1", now=T0 + 120), now=T0 + 120)
    found = await record(broker, lease.job.id, now=T0 + 120)
    equal(found.standing.checkpoint, None, "checkpoint of what has ended")


@check
@needs("given_time")
async def a_holder_is_told_of_a_cancel_and_keeps_its_lease(broker: Broker) -> None:
    lease = await running(broker)
    equal(await broker.cancel([lease.job.id], now=T0 + 1), [CancelVerdict.REQUESTED], "verdict")
    claim = Claim(lease.job.id, lease.fence, b'"p"')
    for second in (2, 3):
        holds = await broker.extend([claim], lease_s=LEASE_S, now=T0 + second)
        equal(holds, [Hold.CANCEL], f"hold {second}")
    standing = (await in_state(broker, lease.job.id, State.RUNNING, now=T0 + 3)).standing
    equal((standing.cancel_requested, standing.cancel_at), (True, T0 + 1), "cancel_requested, and since when")
    equal((standing.lease_until, standing.progress), (T0 + 3 + LEASE_S, b'"p"'), "end and progress")


@check
async def one_call_answers_each_claim_for_itself(broker: Broker) -> None:
    first = await running(broker)
    second = await running(broker)
    await broker.cancel([second.job.id], now=T0)
    claims = [
        Claim(second.job.id, second.fence),
        Claim(first.job.id, first.fence + 7),
        Claim(first.job.id, first.fence),
        Claim(first.job.id, first.fence, b'"twice"'),
    ]
    holds = await broker.extend(claims, lease_s=LEASE_S, now=T0 + 1)
    equal(holds, [Hold.CANCEL, Hold.LOST, Hold.HELD, Hold.HELD], "holds")
    equal((await record(broker, first.job.id, now=T0 + 1)).standing.progress, b'"twice"', "progress")
