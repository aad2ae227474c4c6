"""Checks of storing: each job once, read back as it was, known by id and by key."""

import asyncio
from typing import Any

from forebay.conformance.fixtures import (
    BOOM,
    T0,
    TASK,
    a_job,
    committed,
    equal,
    failure,
    finished,
    in_state,
    leased_ids,
    record,
    running,
    stored,
)
from forebay.conformance.suite import check
from forebay.core import settle
from forebay.core.job import Attempt, Receipt, Standing, Verdict
from forebay.core.lifecycle import Event, State
from forebay.ports.broker import Broker


@check
async def a_stored_job_is_read_back_as_it_was(broker: Broker) -> None:
    job = a_job(
        broker,
        priority=2,
        attempts_max=7,
        expires_at=T0 + 60,
        deadline_at=T0 + 90,
        tenant="acme",
        idempotency_key="k-1",
        body_hash=b"\x00\xff" * 16,
        metadata=b'{"page":"3"}',
        redriven_from=None,
    )
    equal(await broker.enqueue([job], now=T0), [Receipt(Verdict.STORED, job.id, State.QUEUED)], "receipts")
    found = await record(broker, job.id)
    equal(found.job, job, "job")
    equal(found.standing, Standing(State.QUEUED, ready_at=T0), "standing")
    equal(found.redriven_as, None, "redriven_as")


@check
async def odd_values_come_back_unchanged(broker: Broker) -> None:
    deep = b"[" * 500 + b"]" * 500
    jobs = [
        a_job(broker, payload=b'"a\\u0000b\\ud83d\\ude00"', metadata=b""),
        a_job(
            broker, payload='"\U0001f98a héllo \u202e"'.encode(), metadata='{"ключ":"\U0001f98a"}'.encode()
        ),
        a_job(broker, payload=b"null", tenant="тенант", task="Задача.\U0001f98a"),
        a_job(broker, payload=b"", metadata=b"{}"),
        a_job(broker, payload=deep),
        a_job(broker, payload=b'"' + b"x" * 2**20 + b'"'),
        a_job(broker, payload=b"123456789012345678901234567890.5e300"),
        a_job(broker, run_at=T0 + 1 / 3, expires_at=T0 + 0.1 + 0.2, deadline_at=T0 + 2**0.5),
        a_job(broker, payload=b"'; DROP TABLE jobs; --", tenant="a'b\"c%_\\", idempotency_key="'\"\x7f"),
        a_job(broker, attempts_max=1_000_000, priority=0),
    ]
    await broker.enqueue(jobs, now=T0)
    for job in jobs:
        equal((await record(broker, job.id)).job, job, "job")


@check
async def odd_results_and_errors_come_back_unchanged(broker: Broker) -> None:
    for output in (b"", b"null", b'"\\u0000"', b"[1e400]", "\U0001f98a".encode(), b"x" * 300_000):
        lease = await running(broker)
        await committed(broker, settle.complete(lease, output=output, now=T0 + 1 / 3), now=T0 + 1 / 3)
        found = await in_state(broker, lease.job.id, State.SUCCEEDED)
        equal(found.standing.output, output, "output")
        equal(found.standing.finished_at, T0 + 1 / 3, "finished_at")
    for message in ("", "a\x00b", "\U0001f98a" * 50, "line\nline", "'\"\\"):
        lease = await running(broker)
        error = BOOM._replace(message=message, type="mödule.Err", attempt=1)
        transition = failure(lease, now=T0, permanent=True)._replace(
            error=error, attempts=(Attempt(1, T0, T0, Event.EXHAUSTED, "w1", error),)
        )
        await committed(broker, transition, now=T0)
        found = await in_state(broker, lease.job.id, State.DEAD)
        equal(found.standing.error, error, "error")
        equal(found.standing.attempts, transition.attempts, "attempts")


@check
async def receipts_come_in_the_order_of_the_jobs(broker: Broker) -> None:
    jobs = [a_job(broker, run_at=T0 + (n % 2)) for n in range(20)]
    receipts = await broker.enqueue(jobs, now=T0)
    states = [State.SCHEDULED if job.run_at > T0 else State.QUEUED for job in jobs]
    equal([receipt.job_id for receipt in receipts], [job.id for job in jobs], "ids")
    equal([receipt.state for receipt in receipts], states, "states")


@check
async def nothing_to_do_is_done(broker: Broker) -> None:
    equal(await broker.enqueue([], now=T0), [], "receipts of no jobs")
    equal(await broker.commit([], now=T0), [], "answers to no transitions")
    equal(await broker.extend([], lease_s=1.0, now=T0), [], "answers to no claims")
    equal(await broker.cancel([], now=T0), [], "answers to no ids")
    equal(await broker.purge([], limit=10, now=T0), 0, "purged of no ids")


@check
async def new_ids_differ_and_grow_with_time(broker: Broker) -> None:
    ids = [broker.new_id(T0 + n // 100) for n in range(1000)]
    equal(len(set(ids)), 1000, "different ids")
    firsts = ids[::100]
    equal(firsts, sorted(firsts), "ids of growing times")
    for job_id in ids[:3]:
        equal((len(job_id), job_id[8], job_id[14]), (36, "-", "7"), f"form of {job_id}")
        equal(job_id[19] in "89ab", True, f"variant of {job_id}")


@check
async def the_same_id_is_stored_once(broker: Broker) -> None:
    job = a_job(broker, body_hash=b"1")
    other = job._replace(payload=b'"other"', body_hash=b"2")
    await broker.enqueue([job], now=T0)
    receipts = await broker.enqueue([job, other], now=T0 + 1)
    equal(receipts[0], Receipt(Verdict.REPLAYED, job.id, State.QUEUED), "receipt of the same body")
    equal(receipts[1], Receipt(Verdict.CONFLICT, job.id, State.QUEUED), "receipt of another body")
    equal((await record(broker, job.id)).job, job, "job")
    equal((await broker.depth(TASK, now=T0)).open, 1, "open jobs")


@check
async def the_same_id_twice_in_one_call_is_stored_once(broker: Broker) -> None:
    job = a_job(broker)
    receipts = await broker.enqueue([job, job], now=T0)
    equal([r.verdict for r in receipts], [Verdict.STORED, Verdict.REPLAYED], "verdicts")
    equal(await leased_ids(broker), [job.id], "leased")


@check
async def the_same_key_and_body_gives_the_same_job(broker: Broker) -> None:
    first = await stored(broker, idempotency_key="k", body_hash=b"1")
    again = a_job(broker, idempotency_key="k", body_hash=b"1")
    receipts = await broker.enqueue([again], now=T0)
    equal(receipts, [Receipt(Verdict.REPLAYED, first.id, State.QUEUED)], "receipts")
    equal(await broker.get(again.id, now=T0), None, "the job of the repeated call")
    equal(await leased_ids(broker), [first.id], "leased")


@check
async def the_same_key_with_another_body_is_a_conflict(broker: Broker) -> None:
    first = await stored(broker, idempotency_key="k", body_hash=b"1")
    other = a_job(broker, idempotency_key="k", body_hash=b"2")
    receipts = await broker.enqueue([other], now=T0)
    equal(receipts, [Receipt(Verdict.CONFLICT, first.id, State.QUEUED)], "receipts")
    equal(await broker.get(other.id, now=T0), None, "the refused job")
    equal((await broker.depth(TASK, now=T0)).open, 1, "open jobs")


@check
async def the_key_is_asked_before_the_id(broker: Broker) -> None:
    first = await stored(broker, idempotency_key="k", body_hash=b"1")
    second = await stored(broker, body_hash=b"1")
    receipts = await broker.enqueue([second._replace(idempotency_key="k")], now=T0)
    equal(receipts[0], Receipt(Verdict.REPLAYED, first.id, State.QUEUED), "receipt")


@check
async def a_key_belongs_to_one_tenant(broker: Broker) -> None:
    await stored(broker, tenant="a", idempotency_key="k", body_hash=b"1")
    await stored(broker, tenant="b", idempotency_key="k", body_hash=b"2")
    await stored(broker, tenant="", idempotency_key="k", body_hash=b"3")
    # A key and a tenant that read the same when glued together are still two.
    await stored(broker, tenant="x", idempotency_key="yz", body_hash=b"4")
    await stored(broker, tenant="xy", idempotency_key="z", body_hash=b"5")


@check
async def an_empty_key_is_a_key_and_no_key_is_none(broker: Broker) -> None:
    first = await stored(broker, idempotency_key="", body_hash=b"1")
    receipts = await broker.enqueue([a_job(broker, idempotency_key="", body_hash=b"1")], now=T0)
    equal(receipts[0], Receipt(Verdict.REPLAYED, first.id, State.QUEUED), "receipt")
    await stored(broker, body_hash=b"1")
    await stored(broker, body_hash=b"1")


@check
async def a_key_holds_inside_one_call(broker: Broker) -> None:
    jobs = [
        a_job(broker, idempotency_key="k", body_hash=b"1"),
        a_job(broker, idempotency_key="k", body_hash=b"1"),
        a_job(broker, idempotency_key="k", body_hash=b"2"),
        a_job(broker, idempotency_key="k", body_hash=b"2", tenant="b"),
    ]
    receipts = await broker.enqueue(jobs, now=T0)
    verdicts = [Verdict.STORED, Verdict.REPLAYED, Verdict.CONFLICT, Verdict.STORED]
    equal([r.verdict for r in receipts], verdicts, "verdicts")
    equal([r.job_id for r in receipts], [jobs[0].id] * 3 + [jobs[3].id], "ids")


@check
async def a_key_tells_the_state_its_job_has_now(broker: Broker) -> None:
    key: dict[str, Any] = {"idempotency_key": "k", "body_hash": b"1"}
    lease = await running(broker, **key)
    receipts = await broker.enqueue([a_job(broker, **key)], now=T0)
    equal(receipts[0], Receipt(Verdict.REPLAYED, lease.job.id, State.RUNNING), "receipt while running")
    await committed(broker, settle.complete(lease, output=b"1", now=T0), now=T0)
    other = a_job(broker, idempotency_key="k", body_hash=b"2")
    receipts = await broker.enqueue([a_job(broker, **key), other], now=T0)
    equal(receipts[0], Receipt(Verdict.REPLAYED, lease.job.id, State.SUCCEEDED), "receipt when final")
    equal(receipts[1], Receipt(Verdict.CONFLICT, lease.job.id, State.SUCCEEDED), "other body when final")


@check
async def a_purged_key_is_free_again(broker: Broker) -> None:
    job_id = await finished(broker, idempotency_key="k", body_hash=b"1")
    equal(await broker.purge([job_id], limit=10, now=T0), 1, "purged")
    await stored(broker, idempotency_key="k", body_hash=b"2")


@check
async def equal_submissions_at_once_store_one_job(broker: Broker) -> None:
    jobs = [a_job(broker, idempotency_key="k", body_hash=b"1") for _ in range(16)]
    answers = await asyncio.gather(*(broker.enqueue([job], now=T0) for job in jobs))
    receipts = [answer[0] for answer in answers]
    verdicts = sorted(r.verdict.value for r in receipts)
    equal(verdicts, ["replayed"] * 15 + ["stored"], "verdicts")
    equal(len({r.job_id for r in receipts}), 1, "different ids answered")
    equal((await broker.depth(TASK, now=T0)).open, 1, "open jobs")


@check
async def a_job_of_the_future_is_scheduled(broker: Broker) -> None:
    later = await stored(broker, run_at=T0 + 0.001)
    just_now = await stored(broker, run_at=T0)
    past = await stored(broker, run_at=T0 - 5)
    found = await in_state(broker, later.id, State.SCHEDULED)
    equal(found.standing.ready_at, T0 + 0.001, "ready_at of the scheduled job")
    await in_state(broker, just_now.id, State.QUEUED)
    found = await in_state(broker, past.id, State.QUEUED)
    equal(found.standing.ready_at, T0 - 5, "ready_at of the late job")


@check
async def a_key_is_recalled_without_storing_anything(broker: Broker) -> None:
    first = await stored(broker, idempotency_key="k", body_hash=b"1", tenant="a")
    done = await finished(broker, idempotency_key="l", body_hash=b"1", task="other")
    asked = [
        a_job(broker, idempotency_key="k", body_hash=b"1", tenant="a"),
        a_job(broker, idempotency_key="k", body_hash=b"2", tenant="a"),
        a_job(broker, idempotency_key="k", body_hash=b"1"),
        a_job(broker, idempotency_key="l", body_hash=b"1"),
        a_job(broker, idempotency_key="new", body_hash=b"1"),
        a_job(broker),
    ]
    expected = [
        Receipt(Verdict.REPLAYED, first.id, State.QUEUED),
        Receipt(Verdict.CONFLICT, first.id, State.QUEUED),
        None,
        Receipt(Verdict.REPLAYED, done, State.SUCCEEDED),
        None,
        None,
    ]
    for _ in range(2):
        equal(await broker.recall(asked, now=T0), expected, "receipts")
        equal((await broker.depth(TASK, now=T0)).open, 1, "open jobs")
    equal(await broker.recall([], now=T0), [], "nothing asked")
    equal(await broker.get(asked[4].id, now=T0), None, "a job that was only asked about")
