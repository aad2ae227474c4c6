"""/v1/crons: what is shown, to whom, and the taps; and entries whose jobs the door would refuse."""

import asyncio
import json

import pytest

from forebay.core.crons import CronEntry
from forebay.errors import AppError
from tests.server.doors import Caller, a_front, crons_of, finish

A, ROOT = (f"fb_{name}_0123456789abcdefghijklmnopqrstuvwxyz" for name in "ar")
KEYS = json.dumps(
    {A: {"tenant": "a", "scopes": ["submit", "read"]}, ROOT: {"tenant": "ops", "scopes": ["admin"]}}
)
T0 = 1_800_000_000.0


class Clock:
    def __init__(self):
        self.at = T0

    def now(self):
        return self.at

    def random(self):
        return 0.5

    async def sleep(self, seconds):
        await asyncio.sleep(0)


def an_entry(**fields):
    return CronEntry(**{"name": "sweep", "task": "echo", "every_s": 600, **fields})


def front_with(*entries, **options):
    front = a_front(clock=Clock(), **options)
    front.crons = crons_of(front, *entries)
    return front


def call(test, *entries, **options):
    async def run():
        front = front_with(*entries, **options)
        async with asyncio.timeout(30), Caller(front) as caller:
            await test(caller)

    asyncio.run(run())


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def test_an_entry_shows_when_it_runs_next_and_what_became_of_the_last_run():
    async def test(caller):
        front = caller.front
        await front.crons.tick()
        (first,) = (await caller.get("/v1/crons")).json()["items"]
        assert first == {
            "cron": "sweep", "task": "echo", "schedule": "every 600 s", "time_zone": None, "missed": "once",
            "overlap": True, "jitter_s": 0.0, "priority": None, "tenant": "", "paused": False,
            "next_run_at": "2027-01-15T08:10:00.000000Z", "last_run_at": None, "last_job_id": None,
            "last_status": None, "skipped": "new",
        }  # fmt: skip
        front.clock.at = T0 + 600
        await front.crons.tick()
        done = await finish(front)
        (then,) = (await caller.get("/v1/crons")).json()["items"]
        assert (then["last_run_at"], then["next_run_at"]) == (
            "2027-01-15T08:10:00.000000Z",
            "2027-01-15T08:20:00.000000Z",
        )
        assert (then["last_job_id"], then["last_status"], then["skipped"]) == (done, "COMPLETED", None)
        found = (await caller.get("/v1/jobs?metadata.cron=sweep")).json()["items"]
        assert [job["job_id"] for job in found] == [done]

    call(test, an_entry())


def test_an_entry_is_paused_and_resumed():
    async def test(caller):
        paused = (await caller.post("/v1/crons/sweep/pause")).json()
        assert (paused["paused"], paused["next_run_at"]) == (True, None)
        resumed = (await caller.post("/v1/crons/sweep/resume")).json()
        assert (resumed["paused"], resumed["next_run_at"]) == (False, "2027-01-15T08:10:00.000000Z")
        assert [event for event, _ in caller.front.log.lines] == ["cron_paused", "cron_resumed"]

    call(test, an_entry())


def test_an_entry_that_a_queue_refuses_says_what_it_waits_for():
    async def test(caller):
        front = caller.front

        async def skipped():
            return (await caller.get("/v1/crons")).json()["items"][0]["skipped"]

        await front.crons.tick()
        await caller.post("/v1/queues/echo/drain")
        front.clock.at = T0 + 600
        await front.crons.tick()
        assert await skipped() == "draining"
        paused = (await caller.post("/v1/crons/sweep/pause")).json()
        assert paused["skipped"] != "draining", "a paused entry waits for nothing but its resume"
        await caller.post("/v1/crons/sweep/resume")
        assert await skipped() != "draining", "what was due in a pause waits no longer"
        front.clock.at = T0 + 1200
        await front.crons.tick()
        assert await skipped() == "draining"
        await caller.post("/v1/queues/echo/resume")
        front.clock.at += 60
        await front.crons.tick()
        assert await skipped() is None

    call(test, an_entry())


def test_an_unknown_entry_is_not_found_and_the_nearest_name_is_told():
    async def test(caller):
        answer = await caller.post("/v1/crons/sweeep/pause")
        assert answer.status_code == 404
        assert answer.json()["detail"] == "there is no such cron entry: 'sweeep' (did you mean 'sweep'?)"
        assert (await caller.post("/v1/crons/x/pause")).status_code == 404

    call(test, an_entry())


def test_a_tenant_sees_its_own_entries_alone_and_steers_none():
    async def test(caller):
        def names(answer):
            return [item["cron"] for item in answer.json()["items"]]

        assert names(await caller.get("/v1/crons", headers=bearer(A))) == ["own"]
        assert names(await caller.get("/v1/crons", headers=bearer(ROOT))) == ["own", "theirs", "nobodys"]
        as_a = bearer(ROOT) | {"forebay-tenant": "a"}
        assert names(await caller.get("/v1/crons", headers=as_a)) == ["own"]
        assert (await caller.post("/v1/crons/own/pause", headers=bearer(A))).status_code == 403
        assert (await caller.post("/v1/crons/own/pause", headers=as_a)).status_code == 200
        other = await caller.post("/v1/crons/theirs/pause", headers=as_a)
        assert other.status_code == 404 and "own" not in other.json()["detail"].replace("known", "")

    entries = (
        an_entry(name="own", tenant="a"),
        an_entry(name="theirs", tenant="b"),
        an_entry(name="nobodys"),
    )
    call(test, *entries, keys=KEYS)


def test_without_entries_the_list_is_empty():
    async def test(caller):
        assert (await caller.get("/v1/crons")).json() == {"items": [], "next_cursor": None}

    call(test)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"task": "Clip", "payload": b'{"url":""}'}, "cron entry sweep: payload.url: "),
        ({"task": "Clip", "payload": b"null"}, "cron entry sweep: payload: "),
        ({"tenant": "no/pe"}, "cron entry sweep: tenant must be 1 to 64 of"),
    ],
)
def test_an_entry_whose_jobs_would_be_refused_is_refused_at_the_start(fields, said):
    async def run():
        Caller(front_with(an_entry(**fields))).door.warm()

    with pytest.raises(AppError) as refused:
        asyncio.run(run())
    assert said in str(refused.value) and "\n" not in str(refused.value)
