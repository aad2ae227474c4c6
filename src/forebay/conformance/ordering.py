"""Checks of the order between tenants, of ordering keys and of deadlines."""

from typing import Any

from forebay.conformance.fixtures import (
    BOOM,
    POLICY,
    T0,
    TASK,
    a_job,
    committed,
    equal,
    failure,
    leased,
    leased_ids,
    running,
    stored,
)
from forebay.conformance.suite import Store, check, needs, reopening_check
from forebay.core import settle
from forebay.core.fairness import Share
from forebay.core.job import Amendment, CancelVerdict, Job, Lease
from forebay.core.turns import Order
from forebay.ports.broker import Broker

LATER = T0 + 7.0  # when a store is opened again


async def _many(broker: Broker, count: int, **fields: Any) -> list[Job]:
    jobs = [a_job(broker, **fields) for _ in range(count)]
    await broker.enqueue(jobs, now=T0)
    return jobs


async def _tenants(broker: Broker, limit: int, *, now: float = T0) -> list[str]:
    return [lease.job.tenant for lease in await leased(broker, limit=limit, now=now)]


async def _done(broker: Broker, leases: list[Lease], now: float) -> None:
    await broker.commit([settle.complete(lease, output=b"1", now=now) for lease in leases], now=now)


@check
@needs("ordered")
async def tenants_take_turns_inside_a_priority(broker: Broker) -> None:
    await _many(broker, 30, tenant="noisy")
    await _many(broker, 3, tenant="quiet")
    got = await _tenants(broker, 6)
    equal(got.count("quiet"), 3, "grants of the quiet one among the first six")


@check
@needs("ordered")
async def a_tenant_that_comes_late_waits_for_no_backlog(broker: Broker) -> None:
    await _many(broker, 50, tenant="noisy")
    await stored(broker, tenant="other")
    for step in range(10):
        await _done(broker, await leased(broker, limit=2, now=T0 + step), T0 + step + 1)
    late = await stored(broker, now=T0 + 10, tenant="late")
    equal(await leased_ids(broker, limit=1, now=T0 + 10), [late.id], "next")


@check
@needs("ordered")
async def the_first_that_comes_beside_another_is_a_little_ahead(broker: Broker) -> None:
    await _many(broker, 40, tenant="noisy")
    for step in range(10):
        await _done(broker, await leased(broker, limit=2, now=T0 + step), T0 + step + 1)
    await _many(broker, 20, tenant="late")
    got = await _tenants(broker, 20, now=T0 + 10)
    equal(10 < got.count("late") < 20, True, f"more than half, not all: {got.count('late')} of 20")


@check
@needs("ordered", "given_time")
async def an_idle_tenant_saves_up_little(broker: Broker) -> None:
    await _many(broker, 120, tenant="busy")
    await stored(broker, tenant="idle")
    for step in range(40):
        await _done(broker, await leased(broker, limit=2, now=T0 + step), T0 + step + 1)
    await _many(broker, 60, tenant="idle")
    got = await _tenants(broker, 40, now=T0 + 40)
    equal(20 <= got.count("idle") <= 30, True, f"half, and a little ahead: {got.count('idle')} of 40")


@check
@needs("ordered", "given_time")
async def heavy_jobs_count_for_what_they_take(broker: Broker) -> None:
    await _many(broker, 60, tenant="heavy")
    await _many(broker, 60, tenant="light")
    got = {"heavy": 0, "light": 0}
    now = T0
    for _ in range(40):
        (lease,) = await leased(broker, limit=1, now=now)
        now += 4.0 if lease.job.tenant == "heavy" else 1.0
        await _done(broker, [lease], now)
        got[lease.job.tenant] += 1
    equal(28 <= got["light"] <= 36, True, f"four light ones to a heavy one: {got}")


@check
@needs("ordered")
async def a_weight_is_a_share_of_the_service(broker: Broker) -> None:
    broker.set_shares({"gold": Share(weight=3.0)})
    await _many(broker, 60, tenant="basic")
    await _many(broker, 60, tenant="gold")
    now, gold = T0, 0
    for _ in range(40):
        (lease,) = await leased(broker, limit=1, now=now)
        now += 1.0
        await _done(broker, [lease], now)
        gold += lease.job.tenant == "gold"
    equal(28 <= gold <= 32, True, f"three to one: {gold} of 40")


@check
async def a_bound_of_running_jobs_holds_over_all_tasks(broker: Broker) -> None:
    broker.set_shares({"a": Share(running_max=2)})
    await _many(broker, 2, tenant="a", task="first")
    await _many(broker, 3, tenant="a")
    await _many(broker, 1, tenant="b")
    (first,) = await leased(broker, limit=1, task="first")
    equal(sorted(await _tenants(broker, 10)), ["a", "b"], "leased below the bound")
    equal(await leased(broker, limit=10, task="first"), [], "leased at the bound")
    await _done(broker, [first], T0 + 1)
    equal(await _tenants(broker, 10), ["a"], "leased when one had ended")
    broker.set_shares({})
    equal(len(await _tenants(broker, 10)), 1, "leased without a bound")


@check
async def what_is_reserved_is_for_urgent_jobs(broker: Broker) -> None:
    lease = await running(broker, priority=5)
    broker.set_reserve(TASK, 2)
    normal = [await stored(broker, priority=priority) for priority in (3, 9)]
    urgent = [await stored(broker, priority=priority) for priority in (2, 0, 2)]
    got = await leased_ids(broker)
    equal(sorted(got), sorted([normal[0].id, *(job.id for job in urgent)]), "leased")
    rung: list[str] = []
    broker.on_work(rung.append)
    await _done(broker, [lease], T0)
    equal(set(rung), {TASK}, "bells when another may go")
    equal(await leased_ids(broker), [normal[1].id], "leased then")
    other = await stored(broker, task="other")
    equal(await leased_ids(broker, task="other"), [other.id], "leased of another task")
    last = [await stored(broker) for _ in range(2)]
    equal(await leased(broker), [], "leased at the bound")
    broker.set_reserve(TASK, None)
    equal(await leased_ids(broker), [job.id for job in last], "leased without a reserve")


@check
async def a_share_that_makes_no_sense_is_refused(broker: Broker) -> None:
    broker.set_shares({"a": Share(running_max=1)})
    for share in (Share(weight=0.0), Share(weight=float("nan")), Share(weight=-1.0), Share(running_max=0)):
        try:
            broker.set_shares({"a": share})
        except ValueError:
            continue
        raise AssertionError(f"{share} was taken")
    await _many(broker, 2, tenant="a")
    equal(len(await leased(broker)), 1, "leased under the share of before")


@check
@needs("ordered")
async def age_lifts_no_job_over_those_of_a_tenant_that_had_less(broker: Broker) -> None:
    await _many(broker, 20, tenant="noisy", run_at=T0 - 600)
    await stored(broker, tenant="quiet")
    await _done(broker, await leased(broker, limit=6), T0 + 3)
    urgent = await stored(broker, now=T0 + 3, tenant="quiet", priority=2)
    equal(await leased_ids(broker, limit=1, now=T0 + 3), [urgent.id], "next")


@check
@needs("ordered")
async def the_earliest_deadline_goes_first_where_that_is_the_order(broker: Broker) -> None:
    none = await stored(broker, run_at=T0 - 5)
    late = await stored(broker, deadline_at=T0 + 90)
    await broker.set_order(TASK, Order.DEADLINE)
    soon = await stored(broker, deadline_at=T0 + 30)
    middle = await stored(broker, deadline_at=T0 + 60)
    expected = [soon.id, middle.id, late.id, none.id]
    places = [await broker.position(job_id, now=T0) for job_id in expected]
    equal(places, [1, 2, 3, 4], "places")
    equal(await leased_ids(broker), expected, "order")


@check
@needs("ordered")
async def a_level_is_worth_a_minute_of_deadline(broker: Broker) -> None:
    await broker.set_order(TASK, Order.DEADLINE)
    urgent = await stored(broker, priority=4, deadline_at=T0 + 300)
    pressed = await stored(broker, priority=5, deadline_at=T0 + 239)
    equal(await leased_ids(broker), [pressed.id, urgent.id], "order")


@check
async def jobs_of_one_ordering_key_run_one_at_a_time_in_order(broker: Broker) -> None:
    jobs = [await stored(broker, ordering_key="cam", priority=priority) for priority in (9, 5, 0)]
    for job in jobs:
        (lease,) = await leased(broker)
        equal(lease.job.id, job.id, "leased")
        equal(await leased(broker), [], "leased while it runs")
        await _done(broker, [lease], T0)
    equal(await leased(broker), [], "leased of nothing")


@check
async def an_ordering_key_belongs_to_a_task_and_a_tenant(broker: Broker) -> None:
    ids = [
        (await stored(broker, ordering_key="k")).id,
        (await stored(broker, ordering_key="k", tenant="x")).id,
        (await stored(broker, ordering_key="K")).id,
        (await stored(broker, ordering_key="")).id,
        (await stored(broker)).id,
    ]
    other = await stored(broker, task="other", ordering_key="k")
    equal(sorted(await leased_ids(broker)), sorted(ids), "leased")
    equal(await leased_ids(broker, task="other"), [other.id], "leased of another task")


@check
@needs("given_time")
async def an_ordering_key_waits_out_retries_and_is_freed_by_a_dead_letter(broker: Broker) -> None:
    first, second = [await stored(broker, ordering_key="k") for _ in range(2)]
    (lease,) = await leased(broker)
    await committed(broker, failure(lease, now=T0), now=T0)
    equal(await leased(broker), [], "leased while the first waits out its backoff")
    await broker.sweep(limit=10, now=T0 + 60)
    (again,) = await leased(broker, now=T0 + 60)
    equal((again.job.id, again.attempt), (first.id, 2), "leased after the backoff")
    await committed(broker, settle.release(again, policy=POLICY, now=T0 + 60), now=T0 + 60)
    (again,) = await leased(broker, now=T0 + 60)
    equal(again.job.id, first.id, "leased after a hand-back")
    await committed(broker, failure(again, now=T0 + 60, permanent=True), now=T0 + 60)
    equal(await leased_ids(broker, now=T0 + 60), [second.id], "leased after the dead letter")


@check
@needs("given_time")
async def an_ordering_key_goes_on_when_its_head_ends_while_it_waits(broker: Broker) -> None:
    head = await stored(broker, ordering_key="k", run_at=T0 + 50)
    mortal = await stored(broker, ordering_key="k", expires_at=T0 + 5)
    third = await stored(broker, ordering_key="k")
    equal(await leased(broker), [], "leased behind a scheduled one")
    equal(await broker.waits_for(third.id, now=T0), head.id, "who the third waits for")
    equal(await broker.waits_for(head.id, now=T0), None, "who the first waits for")
    equal(await broker.cancel([head.id], now=T0), [CancelVerdict.CANCELLED], "verdict")
    equal(await broker.waits_for(third.id, now=T0), mortal.id, "who the third waits for then")
    equal((await broker.sweep(limit=10, now=T0 + 5)).expired, (mortal.id,), "expired")
    equal(await leased_ids(broker, now=T0 + 5), [third.id], "leased")


@check
async def a_job_behind_its_ordering_key_counts_as_queued(broker: Broker) -> None:
    jobs = [await stored(broker, ordering_key="k", run_at=T0 - 9 + n) for n in range(4)]
    lease = (await leased(broker))[0]
    depth = await broker.depth(TASK, now=T0)
    equal((depth.queued, depth.running, depth.oldest_at), (3, 1, T0 - 8), "queued, running, oldest")
    places = [await broker.position(job.id, now=T0) for job in jobs[1:]]
    equal(places, [2, 3, 4], "places: the one that runs goes before")
    equal(await broker.cancel([jobs[2].id], now=T0), [CancelVerdict.CANCELLED], "cancel behind the key")
    await _done(broker, [lease], T0)
    equal(await leased_ids(broker), [jobs[1].id], "leased")


@check
async def a_bell_rings_when_an_ordering_key_is_free(broker: Broker) -> None:
    await stored(broker, ordering_key="k")
    await stored(broker, ordering_key="k")
    (lease,) = await leased(broker)
    rung: list[str] = []
    broker.on_work(rung.append)
    await _done(broker, [lease], T0)
    equal(set(rung), {TASK}, "bells")


async def _keeps_the_order(store: Store, *, crash: bool) -> None:
    broker = store.broker
    first, second, third = [await stored(broker, ordering_key="k") for _ in range(3)]
    fresh = [await stored(broker, ordering_key="f") for _ in range(2)]
    (lease, other) = await leased(broker)
    await committed(broker, failure(other, now=T0), now=T0)
    amended = await stored(broker, priority=9)
    await broker.amend(amended.id, Amendment(priority=0, task="other"), now=T0)
    again = await store.reopen(broker, crash=crash, now=LATER)
    try:
        equal(await leased(again, now=LATER), [], "leased while the heads are open")
        waiting = [await again.waits_for(job.id, now=LATER) for job in (second, third, fresh[1])]
        equal(waiting, [first.id, first.id, fresh[0].id], "who waits for whom")
        equal((await leased(again, task="other", now=LATER))[0].job.priority, 0, "amended priority")
        await committed(again, settle.lose(lease, error=BOOM, now=LATER), now=LATER)
        (retried,) = await leased(again, now=LATER)
        equal(retried.job.id, first.id, "leased: the head again")
        await _done(again, [retried], LATER)
        equal(await leased_ids(again, now=LATER), [second.id], "leased next")
    finally:
        await again.close()


@reopening_check
@needs("durable")
async def ordering_keys_hold_after_a_close(store: Store) -> None:
    await _keeps_the_order(store, crash=False)


@reopening_check
@needs("durable")
async def ordering_keys_hold_after_a_crash(store: Store) -> None:
    await _keeps_the_order(store, crash=True)
