"""Checks of cron entries: one job for each due instant, whoever asks and however often."""

import asyncio
from typing import Any

from forebay.conformance.fixtures import T0, a_job, equal, finished, in_state, leased_ids, record
from forebay.conformance.suite import Store, check, needs, reopening_check
from forebay.core.crons import CronMark, Skipped
from forebay.core.job import Job, Receipt, Verdict
from forebay.core.lifecycle import State
from forebay.ports.broker import Broker

NAME, WHEN = "nightly", "0 3 * * * UTC"


async def fired(broker: Broker, due_at: float, job: Job | None, skipped: str = "") -> Receipt | None:
    """Deal with a due instant of the entry, a second after it."""
    return await broker.crons.fire(NAME, due_at, job, when=WHEN, skipped=skipped, now=due_at + 1)


@check
async def a_due_instant_gets_its_job_and_the_mark_tells(broker: Broker) -> None:
    equal(await broker.crons.marks(), [], "marks of an empty store")
    job = a_job(broker, at=T0 + 1, tenant="x", priority=2, payload=b"[1]", metadata=b'{"cron":"nightly"}')
    equal(await fired(broker, T0, job), Receipt(Verdict.STORED, job.id, State.QUEUED), "receipt")
    equal((await record(broker, job.id)).job, job, "job")
    equal(await broker.crons.marks(), [CronMark(NAME, WHEN, T0, False, job.id, T0)], "marks")
    equal(await leased_ids(broker, now=T0 + 1), [job.id], "leased")


@check
async def a_due_instant_gets_no_second_job(broker: Broker) -> None:
    first, again, late = a_job(broker), a_job(broker), a_job(broker)
    await fired(broker, T0, first)
    equal(await fired(broker, T0, again), None, "receipt of the same instant")
    equal(await fired(broker, T0 - 60, late), None, "receipt of an earlier instant")
    equal(await leased_ids(broker, now=T0 + 1), [first.id], "jobs")
    equal((await broker.crons.marks())[0].due_at, T0, "due_at of the mark")


@check
async def of_many_who_ask_at_once_one_gets_the_job(broker: Broker) -> None:
    jobs = [a_job(broker) for _ in range(5)]
    receipts = await asyncio.gather(*(fired(broker, T0, job) for job in jobs))
    equal(sum(receipt is not None for receipt in receipts), 1, "receipts")
    equal(len(await leased_ids(broker, now=T0 + 1)), 1, "jobs")


@check
async def a_forgotten_entry_is_as_new(broker: Broker) -> None:
    job = a_job(broker)
    await fired(broker, T0, job)
    await broker.crons.steer("other", paused=True, now=T0 + 1)
    equal(await broker.crons.forget(["never", NAME, NAME], now=T0 + 2), 1, "forgotten")
    equal([mark.name for mark in await broker.crons.marks()], ["other"], "marks")
    await in_state(broker, job.id, State.QUEUED)
    equal(await broker.crons.forget([NAME], now=T0 + 2), 0, "forgotten again")
    first = await broker.crons.fire(NAME, T0 + 5, None, when=WHEN, skipped=Skipped.NEW.value, now=T0 + 5)
    equal(first, None, "receipt of the beginning")
    equal((await broker.crons.marks())[0], CronMark(NAME, WHEN, T0 + 5, skipped="new"), "its mark")


@check
async def a_due_instant_stays_dealt_with_when_its_job_is_purged(broker: Broker) -> None:
    done = await finished(broker, now=T0)
    first = a_job(broker, idempotency_key="cron:1")
    await fired(broker, T0, first)
    equal(await leased_ids(broker, now=T0 + 1), [first.id], "leased")
    await broker.cancel([first.id], now=T0 + 2)
    await broker.purge([done, first.id], limit=10, now=T0 + 2)
    equal(await fired(broker, T0, a_job(broker, idempotency_key="cron:1")), None, "receipt")


@check
async def a_skipped_instant_has_a_reason_and_no_job(broker: Broker) -> None:
    job = a_job(broker)
    await fired(broker, T0, job)
    equal(await fired(broker, T0 + 60, None, Skipped.OVERLAP.value), None, "receipt of a skip")
    equal(await broker.crons.marks(), [CronMark(NAME, WHEN, T0 + 60, False, job.id, T0, "overlap")], "marks")
    equal(await fired(broker, T0 + 60, a_job(broker)), None, "receipt of a job for a skipped instant")
    after = a_job(broker)
    await fired(broker, T0 + 120, after)
    equal(await broker.crons.marks(), [CronMark(NAME, WHEN, T0 + 120, False, after.id, T0 + 120)], "marks")


@check
async def an_entry_is_new_once_for_each_timetable(broker: Broker) -> None:
    async def new(when: str, now: float) -> None:
        await broker.crons.fire(NAME, now, None, when=when, skipped=Skipped.NEW.value, now=now)

    await new(WHEN, T0)
    await new(WHEN, T0 + 60)
    equal(await broker.crons.marks(), [CronMark(NAME, WHEN, T0, skipped="new")], "marks")
    await new("other", T0 + 60)
    equal(await broker.crons.marks(), [CronMark(NAME, "other", T0 + 60, skipped="new")], "marks")


@check
@needs("given_time")
async def a_paused_entry_gets_no_job_and_goes_on_from_the_resume(broker: Broker) -> None:
    await fired(broker, T0, None, Skipped.NEW.value)
    paused = await broker.crons.steer(NAME, paused=True, now=T0 + 10)
    equal(paused, CronMark(NAME, WHEN, T0, True, skipped="new"), "mark when paused")
    equal(await fired(broker, T0 + 60, a_job(broker)), None, "receipt while paused")
    equal(await leased_ids(broker, now=T0 + 61), [], "jobs")
    went_on = await broker.crons.steer(NAME, paused=False, now=T0 + 100)
    equal(went_on, CronMark(NAME, WHEN, T0 + 100, False, skipped="paused"), "mark when resumed")
    equal(await broker.crons.marks(), [went_on], "marks")
    equal(await fired(broker, T0 + 60, a_job(broker)), None, "receipt of what was due in the pause")
    equal((await fired(broker, T0 + 120, a_job(broker))) is not None, True, "receipt of what comes next")


@check
async def an_entry_can_be_paused_before_it_was_ever_seen(broker: Broker) -> None:
    equal(await broker.crons.steer("a", paused=True, now=T0), CronMark("a", "", T0, True), "mark")
    equal([mark.name for mark in await broker.crons.marks()], ["a"], "marks")


@check
@needs("given_time")
async def a_resume_sets_back_a_mark_that_a_wrong_clock_left_ahead(broker: Broker) -> None:
    await broker.crons.fire(NAME, T0 + 10**6, None, when=WHEN, skipped=Skipped.NEW.value, now=T0)
    equal((await broker.crons.steer(NAME, paused=False, now=T0 + 5)).due_at, T0 + 5, "due_at")
    kept = await broker.crons.steer(NAME, paused=False, now=T0 + 50)
    equal(kept.due_at, T0 + 5, "due_at of a mark that does not lie ahead")


@check
async def a_job_whose_key_is_known_moves_the_mark_to_that_job(broker: Broker) -> None:
    fields: dict[str, Any] = {"idempotency_key": "cron:1", "body_hash": b"1"}
    there = a_job(broker, **fields)
    await broker.enqueue([there], now=T0)
    receipt = await fired(broker, T0, a_job(broker, **fields))
    equal(receipt, Receipt(Verdict.REPLAYED, there.id, State.QUEUED), "receipt")
    equal(await broker.crons.marks(), [CronMark(NAME, WHEN, T0, False, there.id, T0)], "marks")


@check
async def a_job_of_an_entry_rings_and_is_told(broker: Broker) -> None:
    rung: list[str] = []
    heard: list[str] = []
    broker.on_work(rung.append)
    broker.on_change(lambda changes: heard.extend(change.job_id for change in changes))
    job = a_job(broker)
    await fired(broker, T0, job)
    await in_state(broker, job.id, State.QUEUED)
    equal((rung[-1:], heard), ([job.task], [job.id]), "rung and heard")


@reopening_check
@needs("durable")
async def marks_survive_a_crash_with_the_jobs_they_name(store: Store) -> None:
    first = a_job(store.broker)
    await fired(store.broker, T0, first)
    await store.broker.crons.steer("other", paused=True, now=T0 + 1)
    before = await store.broker.crons.marks()
    broker = await store.reopen(store.broker, crash=True, now=T0 + 7)
    equal(await broker.crons.marks(), before, "marks")
    equal(await fired(broker, T0, a_job(broker)), None, "receipt of the same instant")
    equal(await leased_ids(broker, now=T0 + 8), [first.id], "jobs")
