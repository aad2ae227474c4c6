"""Checks of the outbox: a callback is owed when its job ends, claimed once, and settled under its claim."""

from collections.abc import Mapping

from forebay.conformance.fixtures import (
    RETENTION_S,
    T0,
    committed,
    dead,
    equal,
    failure,
    finished,
    running,
    stored,
)
from forebay.conformance.suite import Store, check, needs, reopening_check
from forebay.core import settle
from forebay.core.outbox import TRIES_KEPT, Delivery, DeliveryState, DeliveryStep, Try
from forebay.ports.broker import Broker

URL = "https://a.example/hook?x=1"
OTHER = "https://b.example:8443/hook"
CLAIM_S = 60.0


async def _claim(
    broker: Broker,
    *,
    limit: int = 100,
    each_max: int = 100,
    rooms: Mapping[str, int] | None = None,
    now: float = T0,
) -> list[Delivery]:
    return await broker.outbox.claim(
        limit=limit, each_max=each_max, rooms=rooms or {}, lease_s=CLAIM_S, now=now
    )


def _step(row: Delivery, state: DeliveryState, *, now: float, due_at: float | None = None) -> DeliveryStep:
    return DeliveryStep(row.job_id, state, Try(row.tries, now, 0.25, 500, "no"), now, due_at)


async def _get(broker: Broker, job_id: str, *, now: float = T0) -> Delivery:
    row = await broker.outbox.get(job_id, now=now)
    if row is None:
        raise AssertionError(f"no delivery of {job_id}")
    return row


@check
async def every_end_of_a_job_owes_its_callback_and_nothing_before_does(broker: Broker) -> None:
    open_ids = [(await running(broker, callback_url=URL)).job.id]
    retried = await running(broker, callback_url=URL)
    await committed(broker, failure(retried, now=T0), now=T0)
    open_ids += [retried.job.id, (await stored(broker, callback_url=URL, run_at=T0 + 60)).id]
    equal(await _claim(broker), [], "claimed while all are open")
    ids = [await finished(broker, callback_url=URL), await dead(broker, callback_url=URL)]
    cancelled = await running(broker, callback_url=URL)
    await committed(broker, settle.cancel(cancelled, now=T0), now=T0)
    late = await running(broker, callback_url=URL)
    await committed(broker, settle.expire(late, now=T0), now=T0)
    dropped = await stored(broker, callback_url=URL)
    await broker.cancel([dropped.id], now=T0)
    expired = await stored(broker, callback_url=URL, expires_at=T0)
    await broker.sweep(limit=10, now=T0)
    ids += [cancelled.job.id, late.job.id, dropped.id, expired.id]
    await finished(broker)  # no callback
    for job_id in open_ids:
        equal(await broker.outbox.get(job_id, now=T0), None, "the delivery of an open job")
    for job_id in ids:
        owed = Delivery(job_id, URL, DeliveryState.WAITING, 0, T0, T0)
        equal(await _get(broker, job_id), owed, "what is owed")
    equal(sorted(row.job_id for row in await _claim(broker)), sorted(ids), "claimed")


@check
async def a_hand_back_turned_into_a_cancel_owes_its_callback(broker: Broker) -> None:
    lease = await running(broker, callback_url=URL)
    await broker.cancel([lease.job.id], now=T0)
    equal(await broker.outbox.get(lease.job.id, now=T0), None, "owed while it runs")
    await committed(broker, failure(lease, now=T0), now=T0)
    equal((await _get(broker, lease.job.id)).state, DeliveryState.WAITING, "state")


@check
async def an_old_fence_owes_nothing(broker: Broker) -> None:
    lease = await running(broker, callback_url=URL)
    stale = settle.complete(lease, output=b"1", now=T0)._replace(fence=lease.fence + 1)
    equal(await broker.commit([stale], now=T0), [False], "commit")
    equal(await _claim(broker), [], "claimed")


@check
@needs("given_time")
async def a_claim_is_given_once_until_it_lapses(broker: Broker) -> None:
    job_id = await finished(broker, callback_url=URL)
    (row,) = await _claim(broker)
    sent = Delivery(job_id, URL, DeliveryState.SENDING, 1, T0, T0 + CLAIM_S)
    equal(row, sent, "claimed")
    equal(await _get(broker, job_id), sent, "stored")
    equal(await _claim(broker), [], "claimed again")
    equal(await _claim(broker, now=T0 + CLAIM_S - 0.001), [], "just before it lapses")
    (again,) = await _claim(broker, now=T0 + CLAIM_S)
    equal((again.tries, again.state), (2, DeliveryState.SENDING), "when it lapsed")
    step = _step(row, DeliveryState.DELIVERED, now=T0 + CLAIM_S)
    equal(await broker.outbox.settle([step], now=T0 + CLAIM_S), [False], "settled by the first sender")
    step = _step(again, DeliveryState.DELIVERED, now=T0 + CLAIM_S)
    equal(await broker.outbox.settle([step, step], now=T0 + CLAIM_S), [True, False], "settled, twice")


@check
async def a_lapsed_claim_may_settle_while_nobody_claimed_anew(broker: Broker) -> None:
    await finished(broker, callback_url=URL)
    (row,) = await _claim(broker)
    step = _step(row, DeliveryState.DELIVERED, now=T0 + CLAIM_S + 5)
    equal(await broker.outbox.settle([step], now=T0 + CLAIM_S + 5), [True], "settled")


@check
@needs("given_time")
async def a_settled_delivery_keeps_its_log_and_is_due_when_it_says(broker: Broker) -> None:
    job_id = await finished(broker, callback_url=URL)
    (row,) = await _claim(broker)
    step = _step(row, DeliveryState.WAITING, now=T0 + 1, due_at=T0 + 10)
    equal(await broker.outbox.settle([step], now=T0 + 1), [True], "settled")
    waiting = Delivery(job_id, URL, DeliveryState.WAITING, 1, T0, T0 + 10, log=(step.tried,))
    equal(await _get(broker, job_id), waiting, "between the tries")
    equal(await _claim(broker, now=T0 + 9.999), [], "before it is due")
    (row,) = await _claim(broker, now=T0 + 10)
    last = _step(row, DeliveryState.GIVEN_UP, now=T0 + 11)
    await broker.outbox.settle([last], now=T0 + 11)
    ended = Delivery(
        job_id, URL, DeliveryState.GIVEN_UP, 2, T0, None, ended_at=T0 + 11, log=(step.tried, last.tried)
    )
    equal(await _get(broker, job_id), ended, "ended")
    equal(await _claim(broker, now=T0 + 10_000), [], "claimed when ended")
    equal(await broker.outbox.settle([last], now=T0 + 12), [False], "settled again")


@check
async def the_log_keeps_the_newest_tries(broker: Broker) -> None:
    job_id = await finished(broker, callback_url=URL)
    for _ in range(TRIES_KEPT + 3):
        (row,) = await _claim(broker)
        await broker.outbox.settle([_step(row, DeliveryState.WAITING, now=T0, due_at=T0)], now=T0)
    numbers = [tried.number for tried in (await _get(broker, job_id)).log]
    equal(numbers, list(range(4, TRIES_KEPT + 4)), "numbers of the tries kept")


@check
@needs("given_time")
async def claims_go_to_the_earliest_due_and_leave_room_for_other_endpoints(broker: Broker) -> None:
    ids = [await finished(broker, callback_url=URL, now=T0 + n) for n in range(4)]
    ids.append(await finished(broker, callback_url=OTHER, now=T0 + 4))
    ids.append(await finished(broker, callback_url=URL.upper().replace("HOOK", "x"), now=T0 + 5))
    now = T0 + 9
    equal([r.job_id for r in await _claim(broker, limit=0, now=now)], [], "of limit 0")
    equal([r.job_id for r in await _claim(broker, limit=1, now=now)], ids[:1], "the earliest")
    equal([r.job_id for r in await _claim(broker, each_max=2, now=now)], [ids[1], ids[2], ids[4]], "each")
    rooms = {"https://a.example": 0, "https://b.example:8443": 5}
    equal(await _claim(broker, rooms=rooms, now=now), [], "no room at the only endpoint left")
    rooms = {"https://a.example": 1}
    equal(
        [r.job_id for r in await _claim(broker, rooms=rooms, each_max=9, now=now)], [ids[3]], "room for one"
    )
    equal([r.job_id for r in await _claim(broker, now=now)], [ids[5]], "the rest, its host in capitals")


@check
@needs("given_time")
async def a_replay_is_due_at_once_and_counts_from_anew(broker: Broker) -> None:
    job_id = await finished(broker, callback_url=URL)
    (row,) = await _claim(broker)
    equal(await broker.outbox.replay(job_id, now=T0 + 1), row, "replayed while it is sent")
    step = _step(row, DeliveryState.DISABLED, now=T0 + 2)
    await broker.outbox.settle([step], now=T0 + 2)
    again = Delivery(job_id, URL, DeliveryState.WAITING, 1, T0 + 3, T0 + 3, 1, None, (step.tried,))
    equal(await broker.outbox.replay(job_id, now=T0 + 3), again, "replayed")
    equal(await _get(broker, job_id, now=T0 + 3), again, "stored")
    (row,) = await _claim(broker, now=T0 + 3)
    equal((row.tries, row.before, row.message_id), (2, 1, f"msg_{job_id}"), "claimed")
    await broker.outbox.settle([_step(row, DeliveryState.WAITING, now=T0 + 3, due_at=T0 + 99)], now=T0 + 3)
    hurried = await broker.outbox.replay(job_id, now=T0 + 4)
    equal(hurried is not None and hurried.due_at, T0 + 4, "a waiting one is hurried")


@check
async def a_job_without_a_callback_has_no_delivery(broker: Broker) -> None:
    job_id = await finished(broker)
    for known in (job_id, "no id", broker.new_id(T0)):
        equal(await broker.outbox.get(known, now=T0), None, "get")
        equal(await broker.outbox.replay(known, now=T0), None, "replay")
    equal(broker.outbox.due_at(), None, "due_at")
    step = DeliveryStep(job_id, DeliveryState.DELIVERED, Try(1, T0, 0.1, 200), T0)
    equal(await broker.outbox.settle([step, step._replace(job_id="x")], now=T0), [False, False], "settled")


@check
@needs("given_time")
async def nothing_is_due_before_the_outbox_says_so(broker: Broker) -> None:
    job_id = await finished(broker, callback_url=URL)
    for now in (T0, T0 + 60, T0 + 120, T0 + 200):
        due_at = broker.outbox.due_at()
        equal(due_at is not None and due_at <= now, True, f"due at {due_at}, asked at {now}")
        equal([row.job_id for row in await _claim(broker, now=now)], [job_id], "claimed")
    row = await _get(broker, job_id, now=T0 + 200)
    await broker.outbox.settle([_step(row, DeliveryState.DELIVERED, now=T0 + 200)], now=T0 + 200)
    await _claim(broker, now=T0 + 1_000)
    equal(broker.outbox.due_at(), None, "due_at when all have ended")


@check
async def a_bell_rings_when_something_is_owed_and_not_for_what_owes_nothing(broker: Broker) -> None:
    rings: list[int] = []
    remove = broker.outbox.on_owed(lambda: rings.append(1))
    await finished(broker)
    equal(len(rings), 0, "rings without a callback")
    job_id = await finished(broker, callback_url=URL)
    equal(len(rings) > 0, True, "rung at the end of a job")
    for end in ("cancel", "sweep", "replay"):
        rings.clear()
        if end == "replay":
            await broker.outbox.replay(job_id, now=T0)
        elif end == "cancel":
            await broker.cancel([(await stored(broker, callback_url=URL)).id], now=T0)
        else:
            await stored(broker, callback_url=URL, expires_at=T0)
            await broker.sweep(limit=10, now=T0)
        equal(len(rings) > 0, True, f"rung by {end}")
    rings.clear()
    remove()
    await finished(broker, callback_url=URL)
    equal(rings, [], "rings of a removed bell")


@check
@needs("given_time")
async def a_delivery_goes_with_its_job(broker: Broker) -> None:
    named, aged = [await finished(broker, callback_url=URL) for _ in range(2)]
    (first, _) = await _claim(broker)
    equal(await broker.purge([named], limit=1, now=T0), 1, "purged")
    equal(await broker.outbox.get(named, now=T0), None, "get")
    step = _step(first._replace(job_id=named), DeliveryState.DELIVERED, now=T0)
    equal(await broker.outbox.settle([step], now=T0), [False], "settled when purged")
    end = T0 + RETENTION_S
    equal(await broker.outbox.get(aged, now=end), None, "get past retention")
    equal(await broker.outbox.replay(aged, now=end), None, "replay past retention")
    await broker.purge(limit=10, now=end)
    equal(await _claim(broker, now=end), [], "claimed when purged")


async def _survives(store: Store, *, crash: bool) -> None:
    broker = store.broker
    waits = await finished(broker, callback_url=URL)
    (row,) = await _claim(broker)
    await broker.outbox.settle([_step(row, DeliveryState.WAITING, now=T0, due_at=T0 + 500)], now=T0)
    done = await finished(broker, callback_url=URL)
    (row,) = await _claim(broker)
    await broker.outbox.settle([_step(row, DeliveryState.DELIVERED, now=T0)], now=T0)
    sent = await finished(broker, callback_url=OTHER)
    await _claim(broker)
    owed = await finished(broker, callback_url=URL)
    kept = {job_id: await _get(broker, job_id) for job_id in (waits, done, owed)}
    # What was on its way is due at once where the sender has gone with the store's only process.
    later = T0 + CLAIM_S if broker.capabilities.shared else T0 + 7.0
    again = await store.reopen(broker, crash=crash, now=later)
    try:
        for job_id, old in kept.items():
            equal(await _get(again, job_id, now=later), old, f"a {old.state.value} delivery")
        rows = {row.job_id: row for row in await _claim(again, now=later)}
        equal(set(rows), {sent, owed}, "due at the opening: what was owed, and what was on its way")
        equal(rows[sent].tries, 2, "tries of what was on its way")
        equal(rows[sent].message_id, f"msg_{sent}", "its message id")
    finally:
        await again.close()


@reopening_check
@needs("durable", "given_time")
async def deliveries_survive_a_close(store: Store) -> None:
    await _survives(store, crash=False)


@reopening_check
@needs("durable", "given_time")
async def deliveries_survive_a_crash_and_what_was_on_its_way_is_due_again(store: Store) -> None:
    await _survives(store, crash=True)
