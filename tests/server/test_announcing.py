"""A burst that is announced, and headroom that is waited for."""

import asyncio
import json

import pytest

from tests.server.doors import Caller, a_front, call, finish
from tests.server.test_keys import A, B, Still, bearer


def measured(front):
    """Let the task have three replicas that do 150 a second each."""
    estimator = front.estimators["echo"]
    for _ in range(32):
        estimator.ran(items=1, took_s=1 / 150)
    for replica in range(3):
        estimator.crew.ready(replica, now=0.0)


async def announce(caller, jobs=1200, task="echo", headers=None, **more):
    body = {"jobs": jobs, **more}
    return await caller.post(f"/v1/queues/{task}/announce", json=body, headers=headers or {})


def test_a_burst_that_fits_is_told_so():
    async def tried(caller):
        told = (await announce(caller, 10)).json()
        assert told == {
            "task": "echo", "jobs": 10, "fits": True, "room": 10, "rate_per_s": None, "takes_s": None,
            "eta": None, "reserved": 0,
            "message": "10 jobs fit at once (10 places are free). Nothing is reserved.",
        }  # fmt: skip
        await caller.submit()
        told = (await announce(caller, 10)).json()
        assert (told["fits"], told["room"], told["rate_per_s"]) == (False, 9, None)
        assert "nothing was measured yet" in told["message"]
        assert (await caller.get("/v1/queues/echo")).json()["open"] == 1, "and nothing is changed by it"

    call(tried, jobs_max=10)


def test_a_burst_that_does_not_fit_is_told_the_rate_to_keep_and_when_the_last_ends():
    async def tried(caller):
        measured(caller.front)
        told = (await announce(caller)).json()
        assert (told["fits"], told["room"]) == (False, 200)
        assert told["rate_per_s"] == pytest.approx(0.95 * 450 * 1200 / 1020, rel=0.01)
        assert told["takes_s"] == pytest.approx(1200 / told["rate_per_s"], rel=0.01)
        assert told["eta"]["p50_s"] >= told["takes_s"] and told["eta"]["p90_s"] >= told["eta"]["p50_s"]
        shared = {"forebay-budget": "ci=300/s"}
        told = (await announce(caller, headers=shared)).json()
        assert (told["rate_per_s"], told["takes_s"]) == (300.0, 4.0)
        assert "at 300/s they do" in told["message"] and "The last is expected" in told["message"]
        assert (await announce(caller, 100, headers=shared)).json()["rate_per_s"] == 300.0

    call(tried, jobs_max=200)


def test_what_was_unknown_a_moment_ago_is_told_as_soon_as_the_eta_knows_it():
    async def tried(caller):
        assert (await announce(caller)).json()["rate_per_s"] is None
        measured(caller.front)
        told = (await announce(caller)).json()
        assert (told["rate_per_s"] is None) == (told["eta"] is None), told["message"]

    call(tried, jobs_max=200, clock=Still())


@pytest.mark.parametrize(
    ("verb", "fits", "said"),
    [("drain", False, "is draining"), ("pause", False, "as it is paused no rate is known")],
)
def test_a_queue_that_is_drained_or_paused_says_so(verb, fits, said):
    async def tried(caller):
        measured(caller.front)
        await caller.post(f"/v1/queues/echo/{verb}")
        told = (await announce(caller)).json()
        assert (told["fits"], told["rate_per_s"], told["eta"]) == (fits, None, None)
        assert said in told["message"]

    call(tried, jobs_max=200)


def test_large_jobs_count_by_their_bytes():
    async def tried(caller):
        assert (await announce(caller, 5, size="2KB")).json()["room"] == 5
        assert (await announce(caller, 6, size=2000)).json()["fits"] is False

    call(tried, bytes_max=10_000)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"jobs": 0}, 422),
        ({"jobs": 10**12}, 422),
        ({"jobs": 1, "size": "much"}, 422),
        ({"jobs": 1, "sizes": 1}, 422),
        ({}, 422),
        ([], 422),
    ],
)
def test_what_is_no_announcement_is_refused(body, status):
    async def tried(caller):
        answer = await caller.post("/v1/queues/echo/announce", json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, "invalid")
        assert (await announce(caller, 1, task="nope")).status_code == 404

    call(tried)


def test_headroom_is_told_at_once_where_it_is_and_where_it_can_never_be():
    async def tried(caller):
        found = (await caller.get("/v1/queues/echo/headroom")).json()
        assert found == {"task": "echo", "jobs": 1, "has_room": True, "retry_after_s": None}
        assert (await caller.get("/v1/queues/echo/headroom?jobs=10&wait=60")).json()["has_room"] is True
        never = await caller.get("/v1/queues/echo/headroom?jobs=11&wait=60")
        assert (never.status_code, never.json()["limit"]) == (422, 10)
        for query in ("jobs=0", "jobs=x", "room=1", "wait=soon"):
            assert (await caller.get(f"/v1/queues/echo/headroom?{query}")).status_code == 422
        await caller.submit()
        full = (await caller.get("/v1/queues/echo/headroom?jobs=10")).json()
        assert (full["has_room"], full["retry_after_s"]) == (False, 0.5)

    call(tried, jobs_max=10)


def test_who_waits_for_headroom_hears_of_it_when_it_is_there():
    async def tried(caller):
        await caller.submit()
        waits = asyncio.create_task(caller.get("/v1/queues/echo/headroom?jobs=10&wait=60"))
        await asyncio.sleep(0)
        assert not waits.done()
        await finish(caller.front)
        assert (await waits).json()["has_room"] is True

    call(tried, jobs_max=10)


def test_a_wait_for_headroom_ends_in_time_and_with_the_server():
    async def tried(caller):
        await caller.submit()
        assert (await caller.get("/v1/queues/echo/headroom?jobs=10&wait=50ms")).json()["has_room"] is False
        caller.front.lifecycle.begin_drain()
        assert (await caller.get("/v1/queues/echo/headroom?jobs=10&wait=60")).json()["has_room"] is False

    call(tried, jobs_max=10)


def test_waits_for_headroom_are_bounded_and_the_bound_is_counted(monkeypatch):
    monkeypatch.setattr("forebay.server.announcing.HEADROOM_WAITS_MAX", 0)

    async def tried(caller):
        await caller.submit()
        assert (await caller.get("/v1/queues/echo/headroom?jobs=10&wait=60")).json()["has_room"] is False
        text = (await caller.get("/metrics")).text
        assert 'inference_bounds_reached_total{bound="headroom_waits"} 1.0' in text

    call(tried, jobs_max=10)


def test_a_tenant_has_the_room_that_its_quota_leaves_and_is_told_no_number_of_places():
    keys = json.dumps({A: {"tenant": "a", "jobs_max": 3, "rate": 7}, B: {"tenant": "b"}})

    async def run():
        async with asyncio.timeout(30), Caller(a_front(keys=keys, clock=Still(), jobs_max=10)) as caller:
            told = (await announce(caller, 4, headers=bearer(A))).json()
            assert (told["fits"], told["room"]) == (False, None)
            told = (await announce(caller, 3, headers=bearer(A))).json()
            assert (told["fits"], told["rate_per_s"]) == (True, 7.0) and "places" not in told["message"]
            await caller.submit(headers=bearer(A))
            never = await caller.get("/v1/queues/echo/headroom?jobs=4&wait=60", headers=bearer(A))
            assert (never.status_code, never.json()["limit"]) == (422, 3)
            for key, jobs, room in ((A, 2, True), (A, 3, False), (B, 9, True), (B, 10, False)):
                answer = await caller.get(f"/v1/queues/echo/headroom?jobs={jobs}", headers=bearer(key))
                assert answer.json()["has_room"] is room, (key, jobs)

    asyncio.run(run())
