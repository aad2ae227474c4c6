"""Submissions while the engine is away: kept here when asked, handed over once and in order, told truly."""

import asyncio
import json

import pytest

from forebay.brokers.spooled import Bounds, spooled
from forebay.core.job import Query
from forebay.core.lifecycle import State
from forebay.errors import StoreUnavailableError
from tests.brokers.shared.sharing import WAIT_MAX_S, a_job, clock
from tests.e2e.harness import SHORT, Served
from tests.waiting import until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(240)]
SERVED_MAX_S = 90.0


def served(own, root, verb="api", **more):
    env = {
        "FOREBAY_BROKER": own.url("spooled"),
        **SHORT,
        **({} if verb == "work" else {"FOREBAY_SPOOL": "50"}),
        **more,
    }
    return Served(root / verb, "gated.py", env=env, verb=verb, workers=1)


def post(api, n, key=None, **fields):
    headers = {} if key is None else {"Idempotency-Key": key}
    return api.ask(
        "POST", "/v1/jobs", {"task": "echo", "payload": n, **fields}, headers, timeout=SERVED_MAX_S
    )


def test_what_comes_while_the_store_is_away_is_kept_through_a_crash_and_runs_once_in_order(own, tmp_path):
    with served(own, tmp_path) as api:
        first = post(api, "before", key="before").json
        own.halt(own.ENDS["crash"])
        taken = [post(api, n, key=f"k{n}") for n in range(20)]
        assert {one.status for one in taken} == {202}
        jobs = [one.json for one in taken]
        assert all(job["spooled"] and job["position"] is job["eta"] is None for job in jobs)
        assert {job["status"] for job in jobs} == {"PENDING"}
        again = post(api, 3, key="k3")
        assert (again.status, again.json["job_id"]) == (202, jobs[3]["job_id"])
        assert again.headers["idempotency-replayed"] == "true"
        assert post(api, "other", key="k3").status == 422
        repeated, conflict = post(api, "before", key="before").json, post(api, "else", key="before")
        assert repeated["spooled"] and conflict.status == 422
        bulk = api.submit_many([{"task": "echo", "payload": n} for n in range(20, 30)])
        assert all(line["spooled"] for line in bulk)
        shown = api.get(f"/v1/jobs/{jobs[0]['job_id']}")
        assert shown.status == 200 and shown.json["spooled"] and shown.json["eta"] is None
        assert api.get("/readyz").status == 200, "it takes jobs"
        assert b"inference_spooled 31.0" in api.get("/metrics").body
        assert api.ask("DELETE", f"/v1/jobs/{jobs[0]['job_id']}").status == 503
        api.kill()
        own.start()
        api.start()
        with served(own, tmp_path, "work"):
            ids = [job["job_id"] for job in jobs] + [line["job_id"] for line in bulk]
            done = api.finals(ids, SERVED_MAX_S)
            assert [done[one]["result"] for one in ids] == list(range(30))
            assert all("spooled" not in job and job["attempt"] == 1 for job in done.values())
            same = api.final(repeated["job_id"], SERVED_MAX_S)
            assert same["status"] == "CANCELLED" and first["job_id"] in same["error"]["message"]
            listed = [job["job_id"] for job in api.get("/v1/jobs?limit=100").json["items"]]
            assert len(listed) == len(set(listed)) == 32
        until(lambda: b"inference_spooled 0.0" in api.get("/metrics").body, SERVED_MAX_S, "nothing waits")


def test_past_its_bounds_a_spool_refuses_and_drops_nothing(own, tmp_path):
    with served(own, tmp_path, FOREBAY_SPOOL="3") as api:
        assert post(api, "before").status == 202
        own.halt(own.ENDS["crash"])
        taken = [post(api, n) for n in range(3)]
        over = post(api, 4)
        assert [one.status for one in taken] == [202] * 3 and over.status == 503
        assert "the spool is full" in over.json["detail"] and "retry-after" in over.headers
        assert api.get("/readyz").status == 503
        own.start()
        with served(own, tmp_path, "work"):
            api.finals([one.json["job_id"] for one in taken], SERVED_MAX_S)


class Away:
    """An engine that is away when told."""

    def __init__(self, inner):
        self.inner = inner
        self.away = True
        self.lost_answers = 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def enqueue(self, jobs, *, now):
        if self.away:
            raise StoreUnavailableError("away")
        receipts = await self.inner.enqueue(jobs, now=now)
        if self.lost_answers:
            self.lost_answers -= 1
            raise StoreUnavailableError("the answer was lost")
        return receipts


def over(server, tmp_path, body, bounds=None):
    async def run():
        server.drop("spooled")
        away = Away(await server.broker("spooled", clock))
        bounds_now = bounds or Bounds(1_000, 1 << 20, 60.0)

        async def opened():
            return await spooled(away, tmp_path / "spool", bounds_now, clock)

        async with asyncio.timeout(WAIT_MAX_S):
            await body(away, opened)

    asyncio.run(run())


async def empty(broker):
    while broker.spool:
        await clock.sleep(0.02)


def test_an_answer_that_was_lost_stores_nothing_twice_and_the_order_stays(server, tmp_path):
    async def body(away, opened):
        broker = await opened()
        jobs = [a_job(broker, payload=b"%d" % n) for n in range(450)]
        for at in range(0, 450, 45):
            await broker.enqueue(jobs[at : at + 45], now=clock.now())
        away.lost_answers, away.away = 2, False
        await empty(broker)
        page = await broker.find(Query(limit=500), now=clock.now())
        assert [record.job.payload for record in page.records] == [b"%d" % n for n in reversed(range(450))]
        await broker.close()

    over(server, tmp_path, body)
    server.check_counts("spooled")


def test_a_key_that_means_another_body_there_ends_as_a_dead_letter_with_its_callback(server, tmp_path):
    async def body(away, opened):
        broker = await opened()
        now = clock.now()
        fields = {"idempotency_key": "k", "tenant": "t"}
        known = a_job(broker, body_hash=b"one", **fields)
        await away.inner.enqueue([known], now=now)
        late = a_job(broker, body_hash=b"two", callback_url="https://example.org/x", **fields)
        (receipt,) = await broker.enqueue([late], now=now)
        assert receipt.verdict.value == "spooled"
        away.away = False
        await empty(broker)
        record = await broker.get(late.id, now=now)
        assert record.standing.state is State.DEAD and not record.spooled
        assert (
            record.standing.error.code == "idempotency_conflict" and known.id in record.standing.error.message
        )
        assert (await broker.outbox.get(late.id, now=now)).job_id == late.id
        await broker.close()

    over(server, tmp_path, body)


def test_nothing_more_is_taken_when_the_oldest_has_waited_too_long(server, tmp_path):
    async def body(away, opened):
        broker = await opened()
        now = clock.now()
        await broker.enqueue([a_job(broker, created_at=now - 61.0)], now=now)
        with pytest.raises(StoreUnavailableError, match="the spool is full"):
            await broker.enqueue([a_job(broker)], now=now)
        assert len(broker.spool) == 1
        await broker.close()

    over(server, tmp_path, body)


def test_each_process_has_a_file_of_its_own_and_the_next_start_takes_over_all(server, tmp_path):
    async def body(away, opened):
        first, second = await opened(), await opened()
        jobs = [a_job(first) for _ in range(6)]
        for at, job in enumerate(jobs):
            await (first, second)[at % 2].enqueue([job], now=clock.now())
        for one in (first, second):  # as a crash leaves them: nothing handed over
            one._loop.cancel()
            await one.spool.close()
        third = await opened()
        assert [job.id for job in third.spool.jobs()] == [job.id for job in jobs]
        assert json.dumps([third.spool.get(job.id).payload.decode() for job in jobs])
        away.away = False
        await empty(third)
        for job in jobs:
            assert (await third.get(job.id, now=clock.now())).standing.state is State.QUEUED
        await third.close()

    over(server, tmp_path, body)
