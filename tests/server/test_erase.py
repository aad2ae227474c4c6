"""Erasing: in every state, a bounded part at a time, and down to the bytes of the files."""

import asyncio
import json

import pytest

from forebay.brokers.sqlite import SqliteBroker
from forebay.core import settle
from forebay.core.job import Claim, Job
from forebay.server import erase
from tests.server.doors import Caller, a_front, finish, kill, lease
from tests.server.test_keys import KEYS, ROOT, A, B, Still, bearer

MARK = "subject-51f7a"
ROOTED = bearer(ROOT)


def on_disk(test, tmp_path, clock=None):
    async def run():
        clock_ = clock or Still()
        broker = await SqliteBroker.open(tmp_path / "data", clock=clock_)
        try:
            async with asyncio.timeout(50), Caller(a_front(broker=broker, keys=KEYS, clock=clock_)) as caller:
                await test(caller)
        finally:
            await broker.close()

    asyncio.run(run())


async def job_of(caller, key, subject):
    return (
        await caller.one(payload=f"payload of {subject}", metadata={"subject": subject}, headers=bearer(key))
    )["job_id"]


async def a_life(caller, key, subject):
    """Jobs of one subject in every state; returns the lease of the one that runs."""
    await job_of(caller, key, subject)
    await finish(caller.front, output=json.dumps(f"result of {subject}").encode())
    broker, now = caller.front.broker, caller.front.clock.now()
    called = Job(
        broker.new_id(now), "echo", b"1", now, now, tenant="a", metadata=f'{{"subject":"{subject}"}}'.encode(),
        callback_url=f"https://example.org/{subject}",
    )  # fmt: skip
    await broker.enqueue([called], now=now)
    await finish(caller.front)  # its end is owed to the callback now
    assert await broker.outbox.get(called.id, now=now) is not None
    await job_of(caller, key, subject)
    dead = await kill(caller.front)
    answer = await caller.post(f"/v1/dead-letters/{dead}/redrive", headers=bearer(key))
    assert answer.status_code == 200
    await finish(caller.front)
    waiting = await job_of(caller, key, subject)
    await caller.delete(f"/v1/jobs/{waiting}", headers=bearer(key))
    await job_of(caller, key, subject)
    (held,) = await lease(caller.front)
    claim = Claim(held.job.id, held.fence, f'{{"message":"{subject}"}}'.encode(), f'"{subject}"'.encode())
    await caller.front.broker.extend([claim], lease_s=30, now=caller.front.clock.now())
    await job_of(caller, key, subject)
    return held


def bytes_of(tmp_path):
    return b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir() if path.is_file())


def test_nothing_of_a_subject_is_left_in_any_state_or_file(tmp_path):
    async def tried(caller):
        other = await job_of(caller, B, "somebody-else")
        await finish(caller.front)
        held = await a_life(caller, A, MARK)
        assert MARK.encode() in bytes_of(tmp_path)
        ask = {"metadata": {"subject": MARK}, "wait_s": 0}
        first = (await caller.post("/v1/erase", json=ask, headers=ROOTED)).json()
        assert first == {"removed": 6, "running": 1, "done": False, "scrubbed": False}
        now = caller.front.clock.now()
        await caller.front.broker.commit([settle.cancel(held, now=now)], now=now)
        second = (await caller.post("/v1/erase", json=ask, headers=ROOTED)).json()
        assert second == {"removed": 1, "running": 0, "done": True, "scrubbed": True}
        assert MARK.encode() not in bytes_of(tmp_path)
        assert b"somebody-else" in bytes_of(tmp_path)
        assert (await caller.get("/v1/jobs", headers=bearer(A))).json()["items"] == []
        assert (await caller.get(f"/v1/jobs/{other}", headers=bearer(B))).json()["status"] == "COMPLETED"
        told = [fields for event, fields in caller.front.log.lines if event == "erased"]
        assert told[-1] == {"removed": 1, "running": 0, "done": True} and MARK not in str(
            caller.front.log.lines
        )
        assert (await caller.post("/v1/erase", json=ask, headers=ROOTED)).json()["removed"] == 0

    on_disk(tried, tmp_path)


def test_the_name_of_a_tenant_goes_with_its_jobs_and_it_can_come_back(tmp_path):
    async def tried(caller):
        for tenant in ("tenant-0c93", "somebody-else"):
            headers = ROOTED | {"forebay-tenant": tenant}
            await caller.one(headers=headers)
            await finish(caller.front)
        assert b"tenant-0c93" in bytes_of(tmp_path)
        ask = {"tenant": "tenant-0c93"}
        assert (await caller.post("/v1/erase", json=ask, headers=ROOTED)).json()["done"]
        assert b"tenant-0c93" not in bytes_of(tmp_path) and b"somebody-else" in bytes_of(tmp_path)
        headers = ROOTED | {"forebay-tenant": "tenant-0c93"}
        job = await caller.one(headers=headers)
        listed = (await caller.get("/v1/jobs", headers=headers)).json()["items"]
        assert [item["job_id"] for item in listed] == [job["job_id"]]

    on_disk(tried, tmp_path)


def test_a_running_job_that_ends_in_time_is_removed_at_once(tmp_path):
    class Moving(Still):
        async def sleep(self, seconds):
            self.at += seconds
            await asyncio.sleep(0)

    async def tried(caller):
        held = await a_life(caller, A, MARK)
        now = caller.front.clock.now()

        async def end():
            while not (await caller.front.broker.get(held.job.id, now=now)).standing.cancel_requested:
                await asyncio.sleep(0)
            await caller.front.broker.commit([settle.cancel(held, now=now)], now=now)

        ending = asyncio.ensure_future(end())
        answer = await caller.post("/v1/erase", json={"tenant": "a", "wait_s": 60}, headers=ROOTED)
        await ending
        assert answer.json() == {"removed": 7, "running": 0, "done": True, "scrubbed": True}

    on_disk(tried, tmp_path, Moving())


def test_one_request_does_a_bounded_part_and_the_next_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(erase, "ERASE_JOBS_MAX", 4)
    monkeypatch.setattr(erase, "_PAGE_JOBS", 2)

    async def tried(caller):
        for _ in range(7):
            await job_of(caller, A, MARK)
        seen = []
        while not seen or not seen[-1]["done"]:
            seen.append((await caller.post("/v1/erase", json={"tenant": "a"}, headers=ROOTED)).json())
        assert [view["removed"] for view in seen] == [4, 3]
        assert [view["scrubbed"] for view in seen] == [False, True]

    on_disk(tried, tmp_path)


def test_both_filters_must_match_and_work_goes_on_beside_and_after(tmp_path):
    async def tried(caller):
        mine, others = await job_of(caller, A, MARK), await job_of(caller, B, MARK)
        async with asyncio.TaskGroup() as group:
            erased = group.create_task(
                caller.post("/v1/erase", json={"tenant": "a", "metadata": {"subject": MARK}}, headers=ROOTED)
            )
            beside = [group.create_task(caller.submit(payload=n, headers=bearer(B))) for n in range(20)]
        assert erased.result().json()["removed"] == 1
        assert {task.result().status_code for task in beside} == {202}
        assert (await caller.get(f"/v1/jobs/{mine}", headers=bearer(A))).status_code == 410
        assert (await caller.get(f"/v1/jobs/{mine}", headers=bearer(B))).status_code == 404
        assert (await caller.get(f"/v1/jobs/{others}", headers=bearer(B))).status_code == 200
        assert await finish(caller.front) == others
        path = tmp_path / "data"
        await caller.front.broker.close()
        caller.front.broker = again = await SqliteBroker.open(path, clock=caller.front.clock)
        assert (await again.depth("echo", now=caller.front.clock.now())).queued == 20
        await again.close()

    on_disk(tried, tmp_path)


@pytest.mark.parametrize(
    ("ask", "status", "named"),
    [
        ({}, 422, "tenant or metadata"), ({"metadata": {}}, 422, "tenant or metadata"), ({"all": True}, 422, "all"),
        ({"tenant": ""}, 422, "1 to 64"), ({"tenant": 5}, 422, "tenant"), ({"tenant": "a", "wait_s": -1}, 422, "wait_s"), ({"tenant": "a", "wait_s": 1e9}, 422, "wait_s"),
        ([], 422, "object"),
    ],
)  # fmt: skip
def test_what_is_asked_for_must_be_said(tmp_path, ask, status, named):
    async def tried(caller):
        await job_of(caller, A, MARK)
        answer = await caller.post("/v1/erase", json=ask, headers=ROOTED)
        assert (answer.status_code, named in answer.text) == (status, True), answer.text
        assert len((await caller.get("/v1/jobs", headers=bearer(A))).json()["items"]) == 1

    on_disk(tried, tmp_path)
