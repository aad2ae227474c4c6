"""Checks of tenants: what each holds is counted, however its jobs come to their end."""

from forebay.conformance.fixtures import (
    LEASE_S,
    T0,
    a_job,
    committed,
    equal,
    every_end,
    failure,
    leased,
    running,
    stored,
)
from forebay.conformance.suite import Store, check, needs, reopening_check
from forebay.core import settle
from forebay.core.lifecycle import FINAL
from forebay.core.tenant import Held
from forebay.ports.broker import Broker


def held(broker: Broker, tenant: str) -> Held | None:
    """Return what the engine says a tenant holds."""
    return broker.holding_now(tenant, now=T0)


@check
async def what_each_tenant_holds_is_counted_over_all_tasks(broker: Broker) -> None:
    if held(broker, "a") is None:
        return  # it cannot know without IO, and says so
    equal(held(broker, "a"), Held(), "of a tenant never seen")
    ours = [
        a_job(broker, tenant="a", task="t1"),
        a_job(broker, tenant="a", task="t2", metadata=b'{"k":1}'),
        a_job(broker, tenant="a", run_at=T0 + 100),
    ]
    others = [a_job(broker, tenant="b"), a_job(broker)]
    await broker.enqueue([ours[0], others[0], ours[1], others[1], ours[2]], now=T0)
    equal(held(broker, "a"), Held(3, sum(job.size for job in ours)), "a")
    equal(held(broker, "b"), Held(1, others[0].size), "b")
    equal(held(broker, ""), Held(1, others[1].size), "without a name")


@check
async def a_job_counts_for_its_tenant_until_it_is_final(broker: Broker) -> None:
    if held(broker, "a") is None:
        return
    for at in range(len(every_end(await running(broker), T0))):
        lease = await running(broker, tenant="a")
        before = held(broker, "a")
        end = every_end(lease, T0)[at]
        await committed(broker, end, now=T0)
        gone = Held() if before is None else Held(before.jobs - 1, before.bytes - lease.job.size)
        equal(held(broker, "a"), gone if end.state in FINAL else before, f"after {end.event.value}")
        await broker.cancel([lease.job.id], now=T0)
        equal(held(broker, "a"), gone, "after the cancel")


@check
@needs("given_time")
async def a_job_that_expires_or_is_cancelled_counts_no_more(broker: Broker) -> None:
    if held(broker, "a") is None:
        return
    await stored(broker, tenant="a", expires_at=T0 + 5)
    job = await stored(broker, tenant="a")
    await broker.sweep(limit=10, now=T0 + 5)
    equal(held(broker, "a"), Held(1, job.size), "after the sweep")
    await broker.cancel([job.id], now=T0 + 5)
    equal(held(broker, "a"), Held(), "after the cancel")
    replay = await stored(broker, tenant="a", idempotency_key="k", now=T0 + 5)
    await broker.enqueue([replay], now=T0 + 5)
    equal(held(broker, "a"), Held(1, replay.size), "a replay counts once")


@reopening_check
@needs("durable")
async def what_tenants_hold_is_known_again_after_an_opening(store: Store) -> None:
    broker = store.broker
    if held(broker, "a") is None:
        return
    lease = await running(broker, tenant="a")
    again = await running(broker, tenant="a")
    await committed(broker, failure(again, now=T0), now=T0)
    ended = await running(broker, tenant="a")
    await committed(broker, settle.complete(ended, output=b"1", now=T0), now=T0)
    waits = await stored(broker, tenant="a")
    other = await stored(broker, tenant="b")
    size = lease.job.size + again.job.size + waits.size
    equal(held(broker, "a"), Held(3, size), "before")
    for crash in (False, True):
        broker = await store.reopen(broker, crash=crash, now=T0)
        equal(held(broker, "a"), Held(3, size), f"after a {'crash' if crash else 'close'}")
        equal(held(broker, "b"), Held(1, other.size), "of the other")
    equal(len(await leased(broker, limit=10, now=T0 + LEASE_S)) >= 1, True, "work goes on")
