"""Checks of quarantine: deaths are counted by input, over jobs and restarts, until somebody lets it go."""

from typing import Any

from forebay.conformance.fixtures import (
    BOOM,
    T0,
    TASK,
    a_job,
    committed,
    equal,
    failure,
    leased,
    running,
    stored,
)
from forebay.conformance.suite import Store, check, needs, reopening_check
from forebay.core import settle
from forebay.core.job import Charge, Job
from forebay.core.quarantine import INPUTS_MAX, KEPT_S, DeadlyInput, fingerprint_of
from forebay.core.settle import SettlePolicy
from forebay.ports.broker import Broker

ONE_DEATH = SettlePolicy(deaths_max=1, quarantine_deaths=2)


async def died(broker: Broker, *, now: float = T0, policy: SettlePolicy = ONE_DEATH, **fields: Any) -> Job:
    """Have one job die and return it. Nothing else may be queued."""
    lease = await running(broker, now=now, **fields)
    await committed(broker, settle.die(lease, error=BOOM, policy=policy, now=now, jitter=0.0), now=now)
    return lease.job


async def condemned(broker: Broker, **fields: Any) -> Job:
    """Bring an input into quarantine and return the last of its jobs. Nothing else may be queued."""
    await died(broker, **fields)
    return await died(broker, **fields)


async def listed(broker: Broker, *, now: float = T0) -> list[DeadlyInput]:
    """Return all that is in quarantine."""
    return await broker.quarantine.listed(limit=10 * INPUTS_MAX, now=now)


def print_of(broker: Broker, job: Job, *, now: float = T0) -> bytes:
    """Return the hash by which the engine knows an input that must be in quarantine."""
    row = broker.quarantine.held(job, now=now)
    if row is None:
        raise AssertionError(f"the input of {job.id} is not in quarantine")
    return row.fingerprint


@check
async def deaths_of_one_input_are_counted_over_jobs_until_they_condemn_it(broker: Broker) -> None:
    first = await died(broker)
    equal(await listed(broker), [], "in quarantine after one death")
    equal(broker.quarantine.held(first, now=T0), None, "held after one death")
    equal(dict(broker.quarantine.counts()), {}, "counts after one death")
    last = await died(broker)
    known = print_of(broker, first)
    expected = DeadlyInput(known, TASK, first.version, first.tenant, 2, last.id, T0, T0, T0)
    equal(await listed(broker), [expected], "in quarantine")
    equal(broker.quarantine.held(first, now=T0), expected, "held")
    equal(broker.quarantine.find(TASK, expected.fingerprint, now=T0), expected, "found by its hash")
    equal(dict(broker.quarantine.counts()), {TASK: 1}, "counts")


@check
async def deaths_under_requests_count_with_those_under_jobs(broker: Broker) -> None:
    first = await died(broker)
    asked = a_job(broker, payload=first.payload)
    plain = fingerprint_of(asked)
    await broker.quarantine.charge_input(asked, Charge(plain, 2), at=T0 + 1)
    (row,) = await listed(broker, now=T0 + 1)
    equal((row.deaths, row.job_id, row.condemned_at), (2, asked.id, T0 + 1), "after a job and a request")
    equal(broker.quarantine.held(asked, now=T0 + 1), row, "held")


@check
async def a_request_that_died_and_was_answered_has_its_deaths_forgotten(broker: Broker) -> None:
    asked = a_job(broker)
    plain = fingerprint_of(asked)
    for condemns_at in (2, 0, 2):
        await broker.quarantine.charge_input(asked, Charge(plain, condemns_at), at=T0)
    equal(await listed(broker), [], "in quarantine after one death since it was answered")


@check
async def another_tenant_task_version_or_payload_is_another_input(broker: Broker) -> None:
    base: dict[str, Any] = {"tenant": "x", "task": TASK, "version": "1", "payload": b"1"}
    jobs = [await died(broker, **base) for _ in range(2)]
    changes: list[tuple[str, Any]] = [("tenant", "y"), ("task", "b"), ("version", "2"), ("payload", b"2")]
    for name, value in changes:
        other_base: dict[str, Any] = {**base, name: value}
        other = await died(broker, **other_base)
        equal(broker.quarantine.held(other, now=T0), None, f"held with another {name}")
    equal([row.job_id for row in await listed(broker)], [jobs[1].id], "in quarantine")


@check
async def a_death_counts_once_and_only_by_a_current_fence(broker: Broker) -> None:
    lease = await running(broker)
    death = settle.die(lease, error=BOOM, policy=ONE_DEATH, now=T0, jitter=0.0)
    stale = death._replace(fence=death.fence - 1)
    equal(await broker.commit([stale, death, death], now=T0), [False, True, False], "commits")
    equal(await listed(broker), [], "in quarantine")
    await died(broker)
    equal([row.deaths for row in await listed(broker)], [2], "deaths")


@check
@needs("given_time")
async def deaths_between_tries_of_one_job_count(broker: Broker) -> None:
    policy = SettlePolicy(deaths_max=3, quarantine_deaths=2)
    job = await died(broker, policy=policy)
    await broker.sweep(limit=10, now=T0 + 1)
    (lease,) = await leased(broker, now=T0 + 1)
    again = settle.die(lease, error=BOOM, policy=policy, now=T0 + 1, jitter=0.0)
    await committed(broker, again, now=T0 + 1)
    found = [(row.deaths, row.job_id, row.since, row.at) for row in await listed(broker, now=T0 + 1)]
    equal(found, [(2, job.id, T0, T0 + 1)], "in quarantine")


@check
async def only_charged_deaths_count(broker: Broker) -> None:
    await died(broker)
    lease = await running(broker)
    back = settle.suspect(lease, error=BOOM, policy=ONE_DEATH, now=T0)
    await committed(broker, back, now=T0)
    (lease,) = await leased(broker)
    await committed(broker, settle.lose(lease, error=BOOM, now=T0), now=T0)
    (lease,) = await leased(broker)
    await committed(broker, failure(lease, now=T0, permanent=True), now=T0)
    equal(await listed(broker), [], "in quarantine")
    never = SettlePolicy(deaths_max=1, quarantine_deaths=0)
    await died(broker, policy=never)
    equal(await listed(broker), [], "where the task says never")


@check
async def a_death_of_a_job_that_was_to_be_cancelled_counts(broker: Broker) -> None:
    await died(broker)
    lease = await running(broker)
    await broker.cancel([lease.job.id], now=T0)
    death = settle.die(lease, error=BOOM, policy=ONE_DEATH, now=T0, jitter=0.0)
    await committed(broker, death, now=T0)
    equal([row.deaths for row in await listed(broker)], [2], "deaths")


@check
@needs("given_time")
async def a_job_that_died_and_then_succeeds_clears_its_input(broker: Broker) -> None:
    policy = SettlePolicy(deaths_max=3, quarantine_deaths=2)
    await died(broker, policy=policy)
    await broker.sweep(limit=10, now=T0 + 1)
    (lease,) = await leased(broker, now=T0 + 1)
    await committed(broker, settle.complete(lease, output=b"1", now=T0 + 1), now=T0 + 1)
    await died(broker, now=T0 + 1)
    equal(await listed(broker, now=T0 + 1), [], "in quarantine")


@check
@needs("given_time")
async def what_is_in_quarantine_is_not_cleared_by_a_success(broker: Broker) -> None:
    policy = SettlePolicy(deaths_max=9, quarantine_deaths=1)
    await died(broker, policy=policy)
    await broker.sweep(limit=10, now=T0 + 1)
    (lease,) = await leased(broker, now=T0 + 1)
    await committed(broker, settle.complete(lease, output=b"1", now=T0 + 1), now=T0 + 1)
    equal(len(await listed(broker, now=T0 + 1)), 1, "in quarantine")


@check
async def a_released_input_begins_anew(broker: Broker) -> None:
    job = await condemned(broker, tenant="x")
    fingerprint = print_of(broker, job)
    verbs = broker.quarantine
    equal(await verbs.release(fingerprint, tenant="y", now=T0), None, "released by another tenant")
    equal(await verbs.release(b"\0" * 16, tenant=None, now=T0), None, "release of what is not there")
    row = verbs.held(job, now=T0)
    equal(await verbs.release(fingerprint, tenant="x", now=T0), row, "released")
    equal(await listed(broker), [], "in quarantine after it")
    equal((verbs.held(job, now=T0), len(verbs.counts())), (None, 0), "held after it")
    await died(broker, tenant="x")
    equal(await listed(broker), [], "after one more death")
    equal(await verbs.release(fingerprint, tenant=None, now=T0), None, "release of what is not held")


@check
async def a_listing_goes_by_hash_and_knows_tenants_and_tasks(broker: Broker) -> None:
    policy = SettlePolicy(deaths_max=1, quarantine_deaths=1)
    for tenant, task in (("x", "a"), ("x", "b"), ("y", "a"), ("", "a")):
        for payload in (b"1", b"2"):
            await died(broker, policy=policy, tenant=tenant, task=task, payload=payload)
    rows = await listed(broker)
    equal([row.fingerprint for row in rows], sorted({row.fingerprint for row in rows}), "order")
    verbs = broker.quarantine
    equal(await verbs.listed(limit=3, now=T0), rows[:3], "a page")
    equal(await verbs.listed(limit=9, now=T0, after=rows[2].fingerprint), rows[3:], "the next page")
    for tenant in ("x", "y", "", "z"):
        mine = [row for row in rows if row.tenant == tenant]
        equal(await verbs.listed(limit=9, now=T0, tenant=tenant), mine, f"of tenant {tenant!r}")
    ours = [row for row in rows if row.task == "b"]
    equal(await verbs.listed(limit=9, now=T0, task="b"), ours, "of a task")


@check
async def what_a_tenant_or_a_job_left_can_be_forgotten(broker: Broker) -> None:
    policy = SettlePolicy(deaths_max=1, quarantine_deaths=1)
    for tenant in ("x", "x", "y"):
        await died(broker, policy=policy, tenant=tenant, payload=tenant.encode())
    last = await died(broker, policy=policy, tenant="z")
    await died(broker, policy=ONE_DEATH, tenant="x", payload=b"not yet")
    equal(await broker.quarantine.forget(tenant="x"), 2, "forgotten of a tenant")
    equal({row.tenant for row in await listed(broker)}, {"y", "z"}, "left")
    equal(await broker.quarantine.forget(tenant="x", job_ids=["unknown"]), 0, "forgotten again")
    equal(await broker.quarantine.forget(tenant="y", job_ids=[last.id]), 2, "of a tenant and of a job")
    equal(await listed(broker), [], "left")


@check
@needs("given_time")
async def an_input_is_forgotten_long_after_its_last_death(broker: Broker) -> None:
    job = await condemned(broker)
    quarantine, end, known = broker.quarantine, T0 + KEPT_S, print_of(broker, job)
    equal(quarantine.held(job, now=end - 0.5) is not None, True, "held just before")
    equal((quarantine.held(job, now=end), len(await listed(broker, now=end))), (None, 0), "held then")
    equal(await quarantine.release(known, tenant=None, now=end), None, "release then")
    await broker.purge(limit=10, now=end)
    equal(dict(quarantine.counts()), {}, "counts after a purge")
    await died(broker, now=end)
    equal(await listed(broker, now=end), [], "after one more death")


@check
async def a_task_keeps_a_bounded_number_of_inputs(broker: Broker) -> None:
    policy = SettlePolicy(deaths_max=1, quarantine_deaths=1)
    other = await died(broker, policy=policy, task="other")
    now = T0 + 1_000
    await broker.enqueue([a_job(broker, payload=b"%d" % number) for number in range(INPUTS_MAX + 1)], now=now)
    leases = await leased(broker, limit=INPUTS_MAX + 1, now=now)
    deaths = [
        settle.die(lease, error=BOOM, policy=policy, now=T0 + number / 8, jitter=0.0)
        for number, lease in enumerate(leases)
    ]
    equal(await broker.commit(deaths, now=now), [True] * (INPUTS_MAX + 1), "commits")
    rows = await broker.quarantine.listed(limit=2 * INPUTS_MAX, now=now, task=TASK)
    equal(len(rows), INPUTS_MAX, "inputs of the task")
    equal(min(row.at for row in rows), T0 + 1 / 8, "the oldest that is left")
    equal(broker.quarantine.held(other, now=now) is not None, True, "that of another task")


@reopening_check
@needs("durable")
async def quarantine_outlives_a_restart_and_a_crash(store: Store) -> None:
    broker = store.broker
    job = await condemned(broker)
    await died(broker, payload=b"2")
    before = await listed(broker)
    for crash in (True, False):
        broker = await store.reopen(broker, crash=crash, now=T0)
        equal(await listed(broker), before, f"in quarantine, crash {crash}")
        equal(broker.quarantine.held(job, now=T0), before[0], "held")
    await died(broker, payload=b"2")
    equal(len(await listed(broker)), 2, "the count that was kept goes on")
    await broker.quarantine.release(before[0].fingerprint, tenant=None, now=T0)
    broker = await store.reopen(broker, crash=True, now=T0)
    equal(len(await listed(broker)), 1, "a release is kept too")
    await stored(broker)
