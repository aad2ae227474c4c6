"""Checks of contention: many at once, one job, exactly one of them wins; and bells that do not ring."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from forebay.conformance.fixtures import (
    BOOM,
    LEASE_S,
    T0,
    TASK,
    a_job,
    committed,
    equal,
    failure,
    in_state,
    leased,
    record,
    running,
    stored,
)
from forebay.conformance.suite import check, needs
from forebay.core import settle
from forebay.core.job import CancelVerdict, Claim, Hold, Lease, Query
from forebay.core.lifecycle import State
from forebay.ports.broker import Broker, Change

CLAIMERS = 16


async def _claim(broker: Broker, number: int, *, limit: int) -> list[Lease]:
    return await broker.lease(TASK, limit=limit, lease_s=LEASE_S, worker=f"w{number}", now=T0)


@check
async def many_claimers_get_one_job_once(broker: Broker) -> None:
    job = await stored(broker)
    answers = await asyncio.gather(*(_claim(broker, n, limit=1) for n in range(CLAIMERS)))
    leases = [lease for answer in answers for lease in answer]
    equal([lease.job.id for lease in leases], [job.id], "leases given")
    standing = (await record(broker, job.id)).standing
    equal((standing.worker, standing.fence, standing.attempt), (leases[0].worker, 1, 1), "who runs it")


@check
async def many_claimers_share_many_jobs_without_overlap(broker: Broker) -> None:
    jobs = [a_job(broker) for _ in range(200)]
    await broker.enqueue(jobs, now=T0)
    claimed: list[Lease] = []
    for _ in range(len(jobs)):
        answers = await asyncio.gather(*(_claim(broker, n, limit=n % 5 + 1) for n in range(CLAIMERS)))
        claimed += [lease for answer in answers for lease in answer]
        if not any(answers):
            break
    counts = Counter(lease.job.id for lease in claimed)
    equal(set(counts.values()), {1}, "times each job was given")
    equal(set(counts), {job.id for job in jobs}, "jobs given")


@check
async def jobs_stored_while_others_claim_are_each_run_once(broker: Broker) -> None:
    jobs = [a_job(broker) for _ in range(120)]
    claimed: list[str] = []

    async def produce(part: int) -> None:
        for job in jobs[part::4]:
            await broker.enqueue([job], now=T0)

    async def consume(number: int) -> None:
        for _ in range(100):
            leases = await _claim(broker, number, limit=3)
            sent = [settle.complete(lease, output=b"1", now=T0) for lease in leases]
            equal(await broker.commit(sent, now=T0), [True] * len(sent), "commits")
            claimed.extend(lease.job.id for lease in leases)
            if len(claimed) == len(jobs):
                return

    await asyncio.gather(*(produce(n) for n in range(4)), *(consume(n) for n in range(4)))
    for lease in await _claim(broker, 9, limit=len(jobs)):
        claimed.append(lease.job.id)
        await broker.commit([settle.complete(lease, output=b"1", now=T0)], now=T0)
    equal(sorted(claimed), sorted(job.id for job in jobs), "jobs run")
    equal((await broker.depth(TASK, now=T0)).open, 0, "open jobs")


@check
async def many_commits_of_one_lease_apply_once(broker: Broker) -> None:
    lease = await running(broker)
    sent = [settle.complete(lease, output=b"%d" % n, now=T0) for n in range(CLAIMERS)]
    answers = await asyncio.gather(*(broker.commit([transition], now=T0) for transition in sent))
    winners = [n for n, answer in enumerate(answers) if answer == [True]]
    equal(len(winners), 1, "commits that were taken")
    found = await in_state(broker, lease.job.id, State.SUCCEEDED)
    equal(found.standing.output, b"%d" % winners[0], "output")


@check
async def a_result_and_a_rescue_have_one_winner(broker: Broker) -> None:
    for turn in range(8):
        lease = await running(broker, task=f"t{turn}")
        done = settle.complete(lease, output=b"1", now=T0)
        lost = settle.lose(lease, error=BOOM, now=T0)
        pair = (done, lost) if turn % 2 else (lost, done)
        first, second = await asyncio.gather(*(broker.commit([each], now=T0) for each in pair))
        equal(first[0] + second[0], 1, "commits that were taken")
        winner = pair[0] if first[0] else pair[1]
        await in_state(broker, lease.job.id, winner.state)


@check
async def a_cancel_and_a_result_have_one_winner(broker: Broker) -> None:
    for turn in range(8):
        lease = await running(broker, task=f"t{turn}")
        commit = broker.commit([settle.complete(lease, output=b"1", now=T0)], now=T0)
        cancel = broker.cancel([lease.job.id], now=T0)
        if turn % 2:
            answer, verdict = await asyncio.gather(commit, cancel)
        else:
            verdict, answer = await asyncio.gather(cancel, commit)
        equal(answer, [True], "the holder's word is taken either way")
        equal(verdict[0] in (CancelVerdict.REQUESTED, CancelVerdict.FINAL), True, f"verdict {verdict[0]}")
        asked = verdict == [CancelVerdict.REQUESTED]
        found = await in_state(broker, lease.job.id, State.CANCELLED if asked else State.SUCCEEDED)
        equal(found.standing.output, None if asked else b"1", "output")


@check
async def a_cancel_and_a_claim_have_one_winner(broker: Broker) -> None:
    for turn in range(8):
        job = await stored(broker)
        claim, cancel = _claim(broker, 1, limit=1), broker.cancel([job.id], now=T0)
        if turn % 2:
            leases, verdict = await asyncio.gather(claim, cancel)
        else:
            verdict, leases = await asyncio.gather(cancel, claim)
        if verdict == [CancelVerdict.CANCELLED]:
            equal(leases, [], "leases of a cancelled job")
            await in_state(broker, job.id, State.CANCELLED)
        else:
            equal(verdict, [CancelVerdict.REQUESTED], "verdict")
            standing = (await in_state(broker, job.id, State.RUNNING)).standing
            equal((len(leases), standing.cancel_requested), (1, True), "leases and request")
            await committed(broker, settle.cancel(leases[0], now=T0), now=T0)


@check
async def a_renewal_and_a_result_do_not_revive_a_job(broker: Broker) -> None:
    lease = await running(broker)
    claim = Claim(lease.job.id, lease.fence, b'"p"')
    answers = await asyncio.gather(
        broker.commit([settle.complete(lease, output=b"1", now=T0)], now=T0),
        *(broker.extend([claim], lease_s=LEASE_S, now=T0) for _ in range(4)),
    )
    equal(answers[0], [True], "commit")
    standing = (await in_state(broker, lease.job.id, State.SUCCEEDED)).standing
    equal((standing.lease_until, standing.progress), (None, None), "lease and progress")
    equal(await broker.extend([claim], lease_s=LEASE_S, now=T0), [Hold.LOST], "a later renewal")


@check
async def readers_see_whole_jobs_while_others_write(broker: Broker) -> None:
    lease = await running(broker)
    transition = failure(lease, now=T0, permanent=True)
    reads = asyncio.gather(*(broker.get(lease.job.id, now=T0) for _ in range(4)))
    _, records = await asyncio.gather(broker.commit([transition], now=T0), reads)
    for found in records:
        if found is None:
            raise AssertionError("the job was not there for a moment")
        standing = found.standing
        parts = (standing.error is None, standing.finished_at is None, standing.lease_until is None)
        whole = {State.RUNNING: (True, True, False), State.DEAD: (False, False, True)}
        equal(parts, whole.get(standing.state), f"a whole record: {standing}")


@check
@needs("given_time")
async def bells_and_listeners_that_fail_harm_nobody(broker: Broker) -> None:
    def ring(_: str) -> None:
        raise RuntimeError("a bell that is broken")

    def hear(_: Sequence[Change]) -> None:
        raise RuntimeError("a listener that is broken")

    removals = [broker.on_work(ring), broker.on_change(hear)]
    lease = await running(broker)
    await committed(broker, failure(lease, now=T0), now=T0)
    equal((await broker.sweep(limit=10, now=T0 + 60)).promoted, (lease.job.id,), "promoted")
    again = (await leased(broker, now=T0 + 60))[0]
    await committed(broker, settle.complete(again, output=b"1", now=T0 + 60), now=T0 + 60)
    await broker.cancel([(await stored(broker)).id], now=T0)
    for remove in removals:
        remove()
        remove()
    equal(len((await broker.find(Query(), now=T0)).records), 2, "jobs")


@check
async def what_listeners_hear_is_true(broker: Broker) -> None:
    heard: list[Change] = []
    remove = broker.on_change(heard.extend)
    lease = await running(broker)
    await committed(broker, settle.complete(lease, output=b"1", now=T0), now=T0)
    cancelled = await stored(broker, task="other")
    await broker.cancel([cancelled.id], now=T0)
    remove()
    unheard = await stored(broker)
    # Changes may be heard late or never, but never wrong and never of what did not happen.
    happened = {
        (lease.job.id, TASK): {State.QUEUED, State.RUNNING, State.SUCCEEDED},
        (cancelled.id, "other"): {State.QUEUED, State.CANCELLED},
    }
    for change in heard:
        states = happened.get((change.job_id, change.task), set[State]())
        equal(change.state in states, True, f"heard {change}, after {unheard.id} it was removed")
        if change.settled is not None:
            told = change.settled.record()
            equal(told, await record(broker, change.job_id), "the job as the listener was told of it")


@check
async def the_end_that_listeners_are_told_of_is_what_readers_find(broker: Broker) -> None:
    heard: list[Change] = []
    broker.on_change(heard.extend)
    leases = [await running(broker, attempts_max=1) for _ in range(4)]
    await broker.cancel([leases[2].job.id], now=T0)
    await broker.extend([Claim(leases[0].job.id, leases[0].fence, b"1", b"2")], lease_s=LEASE_S, now=T0)
    steps = [
        settle.complete(leases[0], output=b"1", now=T0 + 1),
        failure(leases[1], now=T0 + 1),
        settle.cancel(leases[2], now=T0 + 1),
        settle.expire(leases[3], now=T0 + 1),
    ]
    equal(await broker.commit(steps, now=T0 + 1), [True] * 4, "commits")
    for change in heard:
        if change.settled is not None:
            told = change.settled.record()
            equal(told, await record(broker, change.job_id, now=T0 + 1), f"what was told of {told.standing}")


@check
async def closing_twice_is_harmless(broker: Broker) -> None:
    await stored(broker)
    await broker.close()
    await broker.close()
