"""Checks of purging: final jobs go after their retention or when named, open ones never."""

from forebay.conformance.fixtures import (
    LEASE_S,
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
    leased_ids,
    record,
    running,
    stored,
    walk,
)
from forebay.conformance.suite import check, needs
from forebay.core.job import CancelVerdict, JobRecord, Query, Receipt, Verdict
from forebay.core.lifecycle import State
from forebay.core.retention import Retention
from forebay.ports.broker import Broker


@check
@needs("given_time")
async def a_final_job_is_gone_after_its_retention(broker: Broker) -> None:
    job_id = await finished(broker)
    letter = await dead(broker)
    last = T0 + RETENTION_S - 0.001
    await in_state(broker, job_id, State.SUCCEEDED, now=last)
    equal(await broker.was_purged(job_id, now=last), False, "was_purged before")
    equal(await broker.purge(limit=10, now=last), 0, "purged before")
    end = T0 + RETENTION_S
    equal(await broker.get(job_id, now=end), None, "get at the end of its retention")
    equal(await walk(broker, Query(), now=end), [], "listed")
    equal(await broker.cancel([job_id], now=end), [CancelVerdict.UNKNOWN], "cancel")
    equal(await broker.redrive(letter, a_job(broker, at=end), now=end), None, "redrive")
    equal(await broker.purge(limit=10, now=end), 2, "purged")
    equal(await broker.purge(limit=10, now=end), 0, "purged again")
    equal(await broker.get(job_id, now=end), None, "get after the purge")
    equal((await broker.depth(TASK, now=end)).dead, 0, "dead letters after the purge")


@check
@needs("given_time")
async def a_purged_job_is_told_from_one_that_never_was_if_at_all(broker: Broker) -> None:
    job_id = await finished(broker)
    open_job = await stored(broker)
    end = T0 + RETENTION_S
    await broker.purge(limit=10, now=end)
    equal(await broker.was_purged(job_id, now=end) in (True, False), True, "an answer for the purged job")
    equal(await broker.was_purged(open_job.id, now=end), False, "was_purged of an open job")
    equal(await broker.was_purged("no id", now=end), False, "was_purged of what is no id")


@check
@needs("given_time")
async def a_purged_job_is_told_to_its_own_tenant_alone(broker: Broker) -> None:
    owned = {tenant: await finished(broker, tenant=tenant) for tenant in ("a", "b")}
    letter, waiting = await dead(broker, tenant="a"), await stored(broker, tenant="a")
    end = T0 + RETENTION_S

    async def told(tenant: str, now: float) -> list[bool]:
        ids = (owned["a"], owned["b"], letter, waiting.id, "no id")
        return [await broker.was_purged(job_id, tenant=tenant, now=now) for job_id in ids]

    equal(await told("a", end - 0.001), [False] * 5, "before its retention is over")
    for when in ("past its retention", "purged"):
        equal(await told("a", end), [True, False, True, False, False], f"to its own tenant, {when}")
        equal(await told("b", end), [False, True, False, False, False], f"to the other, {when}")
        equal(await told("c", end), [False] * 5, f"to a stranger, {when}")
        await broker.purge(limit=10, now=end)


@check
async def a_job_that_is_removed_by_name_is_told_to_its_own_tenant_alone(broker: Broker) -> None:
    done = await finished(broker, tenant="a")
    job = (await record(broker, done)).job
    await broker.purge([done], limit=1, now=T0)
    told = [await broker.was_purged(done, tenant=tenant, now=T0) for tenant in ("a", "b", None)]
    equal(told, [True, False, True], "was_purged")
    await broker.enqueue([job], now=T0)
    equal(await broker.was_purged(done, tenant="a", now=T0), False, "was_purged of one that is stored again")


@check
@needs("given_time")
async def purge_goes_by_retention_oldest_first_up_to_its_limit(broker: Broker) -> None:
    ids = [await dead(broker, now=T0 + n, task=f"t{n}") for n in range(5)]
    end = T0 + RETENTION_S + 3
    for purged, left in ((2, [0, 0, 1, 1, 1]), (2, [0, 0, 0, 0, 1]), (0, [0, 0, 0, 0, 1])):
        equal(await broker.purge(limit=2, now=end), purged, "purged")
        letters = [(await broker.depth(f"t{n}", now=end)).dead for n in range(5)]
        equal(letters, left, "dead letters left, oldest first")
    equal(await walk(broker, Query(), now=end), [ids[4]], "left within retention")


@check
@needs("given_time")
async def a_task_may_keep_its_jobs_for_another_time_and_its_dead_letters_for_a_third(broker: Broker) -> None:
    broker.set_retention({"brief": Retention(10.0, 50.0), "long": Retention(9 * RETENTION_S, 10.0)})
    kept: dict[float, list[str]] = {}
    for task, ended_s, dead_s in (
        ("brief", 10.0, 50.0),
        ("long", 9 * RETENTION_S, 10.0),
        (TASK, RETENTION_S, RETENTION_S),
    ):
        kept.setdefault(ended_s, []).append(await finished(broker, task=task))
        waiting = await stored(broker, task=task)
        await broker.cancel([waiting.id], now=T0)
        kept[ended_s].append(waiting.id)
        kept.setdefault(dead_s, []).append(await dead(broker, task=task))
    for kept_s in sorted(kept):
        end = T0 + kept_s
        for job_id in kept[kept_s]:
            await record(broker, job_id, now=end - 0.001)
        equal(await broker.purge(limit=100, now=end - 0.001), 0, "purged before")
        equal(
            [await broker.get(job_id, now=end) for job_id in kept[kept_s]], [None] * len(kept[kept_s]), "get"
        )
        left = [job_id for other_s, ids in kept.items() if other_s > kept_s for job_id in ids]
        equal(await walk(broker, Query(), now=end), sorted(left, reverse=True), "listed")
        equal(await broker.purge(limit=100, now=end), len(kept[kept_s]), "purged")


@check
@needs("given_time")
async def purge_takes_those_that_are_past_the_longest_first(broker: Broker) -> None:
    broker.set_retention({"brief": Retention(10.0, 10.0)})
    await dead(broker, now=T0)
    await dead(broker, now=T0 + RETENTION_S - 60, task="brief")
    end = T0 + RETENTION_S + 1
    for left in ([1, 0], [0, 0]):
        equal(await broker.purge(limit=1, now=end), 1, "purged")
        letters = [(await broker.depth(task, now=end)).dead for task in (TASK, "brief")]
        equal(letters, left, "dead letters left")


@check
@needs("given_time")
async def another_retention_holds_for_what_has_ended_before(broker: Broker) -> None:
    job_id = await finished(broker)
    broker.set_retention({TASK: Retention(10.0, 10.0)})
    equal(await broker.get(job_id, now=T0 + 10), None, "get with a shorter one")
    broker.set_retention({TASK: Retention(9 * RETENTION_S, 10.0)})
    await in_state(broker, job_id, State.SUCCEEDED, now=T0 + 2 * RETENTION_S)
    equal(await broker.purge(limit=10, now=T0 + 2 * RETENTION_S), 0, "purged with a longer one")
    broker.set_retention({})
    equal(await broker.purge(limit=10, now=T0 + 2 * RETENTION_S), 1, "purged with that of all")


@check
@needs("given_time")
async def a_purge_finds_what_is_past_behind_what_is_kept(broker: Broker) -> None:
    broker.set_retention({"long": Retention(9 * RETENTION_S, 9 * RETENTION_S)})
    for n in range(6):
        await finished(broker, now=T0 + n, task="long" if n % 2 else TASK)
    end = T0 + RETENTION_S + 10
    purged = [await broker.purge(limit=1, now=end) for _ in range(4)]
    equal(purged, [1, 1, 1, 0], "purged one by one")
    await finished(broker, now=end)
    equal(await broker.purge(limit=9, now=end + RETENTION_S), 1, "purged a day later")
    equal(len(await walk(broker, Query(), now=end + RETENTION_S)), 3, "kept")


@check
@needs("given_time")
async def purge_never_removes_open_jobs(broker: Broker) -> None:
    lease = await running(broker)
    retrying = await running(broker)
    await committed(broker, failure(retrying, now=T0), now=T0)
    ids = [lease.job.id, retrying.job.id]
    ids += [(await stored(broker)).id, (await stored(broker, run_at=T0 + 60)).id]
    equal(await broker.purge(ids, limit=10, now=T0 + 1), 0, "purged by name")
    equal(await broker.purge(limit=10, now=T0 + 10 * RETENTION_S), 0, "purged by age")
    for job_id in ids:
        await record(broker, job_id, now=T0 + 10 * RETENTION_S)


@check
async def purge_by_name_removes_final_jobs_at_once(broker: Broker) -> None:
    done, letter = await finished(broker), await dead(broker)
    waiting = await stored(broker)
    kept = await record(broker, waiting.id)
    equal(await broker.purge([done, letter, waiting.id, done, "x"], limit=1, now=T0), 2, "purged")
    for job_id in (done, letter):
        equal(await broker.get(job_id, now=T0), None, "get")
    equal(await record(broker, waiting.id), kept, "the open job")
    equal(await walk(broker, Query()), [waiting.id], "listed")
    equal(await broker.purge([done], limit=1, now=T0), 0, "purged again")


@check
async def a_purged_id_can_be_stored_again(broker: Broker) -> None:
    done = await finished(broker)
    job = (await record(broker, done)).job
    await broker.purge([done], limit=1, now=T0)
    equal(await broker.enqueue([job], now=T0), [Receipt(Verdict.STORED, job.id, State.QUEUED)], "receipt")
    found: JobRecord = await record(broker, done)
    equal((found.standing.fence, found.standing.attempt, found.standing.output), (0, 0, None), "standing")
    leases = await broker.lease(TASK, limit=1, lease_s=LEASE_S, worker="w", now=T0)
    equal([lease.job for lease in leases], [job], "leased")


@check
async def a_scrub_changes_nothing_that_is_there(broker: Broker) -> None:
    done, waits = await finished(broker), await stored(broker)
    gone = await finished(broker, task="other")
    await broker.purge([gone], limit=1, now=T0)
    before = [await record(broker, job_id) for job_id in (done, waits.id)]
    await broker.scrub()
    equal([await record(broker, job_id) for job_id in (done, waits.id)], before, "records")
    equal(await broker.get(gone, now=T0), None, "what was removed")
    equal(await leased_ids(broker), [waits.id], "leased after it")
