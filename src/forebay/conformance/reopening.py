"""Checks of durable engines: what was answered is there after a close, and after a crash."""

from forebay.conformance.fixtures import (
    BOOM,
    LEASE_S,
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
    in_state,
    leased,
    leased_ids,
    record,
    running,
    stored,
)
from forebay.conformance.suite import Store, needs, reopening_check
from forebay.core import settle
from forebay.core.job import CancelVerdict, Claim, Depth, Hold, Query, Receipt, Verdict
from forebay.core.lifecycle import State
from forebay.ports.broker import Broker

LATER = T0 + 7.0  # when the store is opened again; shorter than a lease


def lapsed_at(broker: Broker) -> float:
    """Return when what ran before the opening is overdue: at once where one process owns the store, for its
    holders are gone; else when its lease ends."""
    return T0 + LEASE_S if broker.capabilities.shared else LATER


async def _one_in_each_state(broker: Broker) -> list[str]:
    ids = [await finished(broker, metadata=b'{"a":"b"}'), await dead(broker)]
    retrying = await running(broker)
    await committed(broker, failure(retrying, now=T0), now=T0)
    deferred = await running(broker)
    await committed(broker, settle.defer(deferred, until=T0 + 99, policy=POLICY, now=T0), now=T0)
    released = await running(broker, expires_at=T0 + 500)
    await committed(broker, settle.suspect(released, error=BOOM, policy=POLICY, now=T0), now=T0)
    cancelled = await stored(broker)
    await broker.cancel([cancelled.id], now=T0)
    expired = await stored(broker, expires_at=T0)
    await broker.sweep(limit=10, now=T0)
    scheduled = await stored(broker, run_at=T0 + 60, payload=b"x" * 1000)
    ids += [retrying.job.id, deferred.job.id, released.job.id, cancelled.id, expired.id, scheduled.id]
    return ids


async def _survives(store: Store, *, crash: bool) -> None:
    broker = store.broker
    ids = await _one_in_each_state(broker)
    await broker.pause("paused", paused=True, now=T0)
    await broker.drain("draining", draining=True, now=T0)
    before = [await record(broker, job_id) for job_id in ids]
    depth, tasks = await broker.depth(TASK, now=T0), await broker.tasks()
    again = await store.reopen(broker, crash=crash, now=LATER)
    try:
        for old in before:
            equal(await again.get(old.job.id, now=LATER), old, f"a {old.standing.state.value} job")
        equal(await again.depth(TASK, now=LATER), depth, "depth")
        equal(await again.tasks(), tasks, "tasks")
        equal((await again.depth("paused", now=LATER)).paused, True, "paused")
        equal((await again.depth("draining", now=LATER)).draining, True, "draining")
        page = await again.find(Query(), now=LATER)
        equal(len(page.records), len(ids), "jobs listed")
        swept = await again.sweep(limit=100, now=T0 + 99)
        equal((len(swept.promoted), len(swept.overdue)), (3, 0), "promoted and overdue")
        equal(len(await leased_ids(again, now=T0 + 99)), 4, "leased")
    finally:
        await again.close()


@reopening_check
@needs("durable", "given_time")
async def every_state_survives_a_close(store: Store) -> None:
    await _survives(store, crash=False)


@reopening_check
@needs("durable", "given_time")
async def every_state_survives_a_crash(store: Store) -> None:
    await _survives(store, crash=True)


@reopening_check
@needs("durable")
async def odd_values_survive(store: Store) -> None:
    broker = store.broker
    jobs = [
        a_job(
            store.broker, payload=b'"a\\u0000b"', metadata='{"ключ":"\U0001f98a"}'.encode(), tenant="тенант"
        ),
        a_job(
            store.broker, payload=b"x" * 2**20, run_at=T0 + 1 / 3, expires_at=T0 + 0.1 + 0.2 + 1, priority=0
        ),
        a_job(broker, payload=b"", idempotency_key="", body_hash=b"\x00" * 32, deadline_at=T0 + 2**0.5),
        a_job(broker, version="2.1-é", ordering_key="", callback_url="https://a/?b=%20", fingerprint=b"\0\1"),
    ]
    await broker.enqueue(jobs, now=T0)
    again = await store.reopen(broker, crash=True, now=LATER)
    try:
        for job in jobs:
            equal((await record(again, job.id, now=T0)).job, job, "job")
    finally:
        await again.close()


@reopening_check
@needs("durable", "given_time")
async def a_checkpoint_survives(store: Store) -> None:
    lease = await running(store.broker)
    claim = Claim(lease.job.id, lease.fence, None, b'{"page":3}')
    await store.broker.extend([claim], lease_s=LEASE_S, now=T0)
    again = await store.reopen(store.broker, crash=True, now=LATER)
    try:
        equal((await record(again, lease.job.id, now=LATER)).standing.checkpoint, b'{"page":3}', "checkpoint")
        (overdue,) = (await again.sweep(limit=10, now=lapsed_at(again))).overdue
        equal(overdue.checkpoint, b'{"page":3}', "checkpoint of the lease that lapsed")
    finally:
        await again.close()


@reopening_check
@needs("durable")
async def a_key_survives(store: Store) -> None:
    broker = store.broker
    waiting = await stored(broker, idempotency_key="k", body_hash=b"1", run_at=T0 + 60)
    done = await finished(broker, idempotency_key="done", body_hash=b"1")
    again = await store.reopen(broker, crash=True, now=LATER)
    try:
        fresh = [again.new_id(T0) for _ in range(100)]
        equal({waiting.id, done} & set(fresh), set[str](), "new ids that were given before")
        jobs = [
            a_job(again, idempotency_key="k", body_hash=b"1"),
            a_job(again, idempotency_key="k", body_hash=b"2"),
            a_job(again, idempotency_key="done", body_hash=b"1"),
            waiting,
        ]
        expected = [
            Receipt(Verdict.REPLAYED, waiting.id, State.SCHEDULED),
            Receipt(Verdict.CONFLICT, waiting.id, State.SCHEDULED),
            Receipt(Verdict.REPLAYED, done, State.SUCCEEDED),
            Receipt(Verdict.REPLAYED, waiting.id, State.SCHEDULED),
        ]
        equal(await again.enqueue(jobs, now=LATER), expected, "receipts")
    finally:
        await again.close()


async def _returns_running(store: Store, *, crash: bool) -> None:
    broker = store.broker
    lease = await running(broker, attempts_max=2)
    await broker.extend([Claim(lease.job.id, lease.fence, b'"p"')], lease_s=LEASE_S, now=T0 + 1)
    last_try = await running(broker, attempts_max=1)
    again = await store.reopen(broker, crash=crash, now=LATER)
    try:
        await in_state(again, lease.job.id, State.RUNNING, now=LATER)
        overdue = {each.job.id: each for each in (await again.sweep(limit=10, now=LATER)).overdue}
        equal(set(overdue), {lease.job.id, last_try.job.id}, "overdue at the first sweep")
        found = overdue[lease.job.id]
        equal(found._replace(until=lease.until), lease, "the lease, but for its end")
        sent = [settle.lose(each, error=BOOM, now=LATER) for each in overdue.values()]
        equal(await again.commit(sent, now=LATER), [True, True], "commits")
        await in_state(again, last_try.job.id, State.DEAD, now=LATER)
        retried = (await leased(again, now=LATER))[0]
        equal(retried.job.id, lease.job.id, "leased again")
        equal((retried.attempt, retried.fence, retried.suspect), (2, 2, True), "attempt, fence and suspect")
        late = settle.complete(lease, output=b"1", now=LATER)
        equal(await again.commit([late], now=LATER), [False], "a commit of the old holder")
    finally:
        await again.close()


@reopening_check
@needs("durable", "given_time", "owned")
async def what_was_running_is_returned_at_once_after_a_close(store: Store) -> None:
    await _returns_running(store, crash=False)


@reopening_check
@needs("durable", "given_time", "owned")
async def what_was_running_is_returned_at_once_after_a_crash(store: Store) -> None:
    await _returns_running(store, crash=True)


@reopening_check
@needs("durable", "given_time")
async def an_old_holder_may_commit_until_somebody_took_over(store: Store) -> None:
    lease = await running(store.broker)
    again = await store.reopen(store.broker, crash=True, now=LATER)
    try:
        late = lapsed_at(again)
        renewal = await again.extend([Claim(lease.job.id, lease.fence)], lease_s=LEASE_S, now=late)
        equal(renewal, [Hold.LOST], "renewal")
        await committed(again, settle.complete(lease, output=b'"late"', now=late), now=late)
        await in_state(again, lease.job.id, State.SUCCEEDED, now=late)
    finally:
        await again.close()


@reopening_check
@needs("durable")
async def a_cancel_that_was_asked_survives(store: Store) -> None:
    lease = await running(store.broker)
    await store.broker.cancel([lease.job.id], now=T0)
    again = await store.reopen(store.broker, crash=True, now=LATER)
    try:
        standing = (await record(again, lease.job.id, now=LATER)).standing
        equal((standing.cancel_requested, standing.cancel_at), (True, T0), "cancel_requested, and since when")
        await committed(again, settle.lose(lease, error=BOOM, now=LATER), now=LATER)
        await in_state(again, lease.job.id, State.CANCELLED, now=LATER)
    finally:
        await again.close()


@reopening_check
@needs("durable", "ordered")
async def the_order_survives(store: Store) -> None:
    broker = store.broker
    jobs = [await stored(broker, priority=(n * 7) % 10, run_at=T0 - (n * 37) % 300) for n in range(30)]
    places = {await broker.position(job.id, now=T0): job.id for job in jobs}
    again = await store.reopen(broker, crash=True, now=LATER)
    try:
        equal(await again.position(places[9], now=LATER), 9, "position")
        equal(await leased_ids(again, now=LATER), [places[n] for n in range(1, 31)], "order")
    finally:
        await again.close()


@reopening_check
@needs("durable", "given_time")
async def purges_and_links_survive(store: Store) -> None:
    broker = store.broker
    gone, letter = await finished(broker), await dead(broker)
    await broker.purge([gone], limit=1, now=T0)
    successor = a_job(broker)
    await broker.redrive(letter, successor, now=T0)
    again = await store.reopen(broker, crash=True, now=LATER)
    try:
        equal(await again.get(gone, now=LATER), None, "the purged job")
        equal((await record(again, letter, now=LATER)).redriven_as, successor.id, "redriven_as")
        equal((await record(again, successor.id, now=LATER)).job.redriven_from, letter, "redriven_from")
        receipt = await again.redrive(letter, a_job(again), now=LATER)
        equal(receipt, Receipt(Verdict.REPLAYED, successor.id, State.QUEUED), "a second redrive")
        await again.cancel([successor.id], now=LATER)
        end = LATER + RETENTION_S
        equal(await again.purge(limit=10, now=end), 2, "purged by age")
        equal(await again.depth(TASK, now=end), Depth(), "depth")
    finally:
        await again.close()


@reopening_check
@needs("durable")
async def a_store_opened_often_stays_the_same(store: Store) -> None:
    broker = store.broker
    lease = await running(broker)
    waiting = await stored(broker)
    for turn in range(4):
        broker = await store.reopen(broker, crash=turn % 2 == 0, now=LATER + turn)
        standing = (await record(broker, lease.job.id, now=LATER + turn)).standing
        equal((standing.attempt, standing.fence), (1, 1), "attempt and fence")
    try:
        equal(await leased_ids(broker, now=LATER + 9), [waiting.id], "leased")
        equal(await broker.cancel([waiting.id], now=LATER + 9), [CancelVerdict.REQUESTED], "cancel")
    finally:
        await broker.close()
