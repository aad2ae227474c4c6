"""Ordering keys at the door, PATCH of a waiting job, and the tenant of the header."""

import pytest

from forebay.cli.explain import sentence
from forebay.core import settle
from forebay.core.task import TaskSpec
from tests.server.doors import CLIP, call, lease

UNKNOWN = "01900000-0000-7000-8000-000000000000"
TASKS = {
    "echo": TaskSpec(name="echo"),
    "Clip": TaskSpec(name="Clip", kind="class", input_schema=CLIP, version="7"),
}


async def patch(caller, job, **change):
    return await caller.request("PATCH", f"/v1/jobs/{job['job_id']}", json=change)


def test_an_ordering_key_is_stored_shown_and_waited_for():
    async def run(caller):
        first, second = [await caller.one(ordering_key="camera 7", priority="low") for _ in range(2)]
        assert first["ordering_key"] == "camera 7"
        (held,) = await lease(caller.front, limit=5)
        shown = (await caller.get(second["links"]["self"])).json()
        assert (shown["state"], shown["waits_for"]) == ("queued", first["job_id"])
        told = sentence(shown, {}, [])
        assert told.endswith(f"waits for job {first['job_id']} of the same ordering key (camera 7).")
        now = caller.front.clock.now()
        await caller.front.broker.commit([settle.complete(held, output=b"1", now=now)], now=now)
        assert (await caller.get(second["links"]["self"])).json()["waits_for"] is None
        assert [one.job.id for one in await lease(caller.front, limit=5)] == [second["job_id"]]

    call(run)


def test_each_line_of_many_has_its_own_ordering_key():
    async def run(caller):
        line = {"task": "echo", "payload": 1}
        _, verdicts = await caller.bulk(*[{**line, "ordering_key": key} for key in ("a", "a", "b")], line)
        assert [verdict["status"] for verdict in verdicts] == [202] * 4
        assert len(await lease(caller.front, limit=9)) == 3

    call(run)


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", "a\x00b", 5, ["a"], {"a": 1}])
def test_an_ordering_key_that_breaks_the_rule_is_refused(key):
    async def run(caller):
        answer = await caller.submit(ordering_key=key)
        assert answer.status_code == 422 and "ordering_key" in answer.text
        _, verdicts = await caller.bulk({"task": "echo", "payload": 1, "ordering_key": key})
        assert verdicts[0]["status"] == 422 and verdicts[0]["errors"][0]["path"] == "ordering_key"
        assert await caller.depth() == 0

    call(run)


def test_another_body_with_another_ordering_key_is_a_conflict():
    async def run(caller):
        await caller.one(idempotency_key="k", ordering_key="a")
        answer = await caller.submit(idempotency_key="k", ordering_key="b")
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_conflict")

    call(run)


def test_the_tenant_of_the_header_shares_the_queue():
    async def run(caller):
        for _ in range(20):
            await caller.submit(headers={"Forebay-Tenant": "noisy"})
        quiet = (await caller.submit(headers={"Forebay-Tenant": "quiet"})).json()
        first = await lease(caller.front, limit=2)
        assert quiet["job_id"] in [one.job.id for one in first]
        assert sorted(one.job.tenant for one in first) == ["noisy", "quiet"]

    call(run)


def test_a_waiting_job_gets_another_priority():
    async def run(caller):
        first, second = await caller.one(), await caller.one()
        answer = await patch(caller, second, priority="high")
        assert (answer.status_code, answer.json()["priority"]) == (200, "high")
        assert answer.json()["position"] == 1
        before = (await caller.get(first["links"]["self"])).headers["etag"]
        await patch(caller, first, priority=0)
        assert (await caller.get(first["links"]["self"])).headers["etag"] != before
        assert [one.job.id for one in await lease(caller.front, limit=2)] == [
            first["job_id"],
            second["job_id"],
        ]

    call(run)


def test_a_waiting_job_moves_to_a_task_that_takes_its_payload():
    async def run(caller):
        job = await caller.one(payload={"url": "x"}, metadata={"a": 1})
        answer = await patch(caller, job, task="Clip", priority=3)
        assert answer.status_code == 200
        assert (answer.json()["task"], answer.json()["priority"]) == ("Clip", 3)
        assert await lease(caller.front) == []
        (held,) = await lease(caller.front, task="Clip")
        assert (held.job.id, held.job.version, held.job.metadata) == (job["job_id"], "7", b'{"a":1}')

    call(run, tasks=TASKS)


def test_a_task_that_does_not_take_the_payload_refuses_the_job():
    async def run(caller):
        job = await caller.one(payload={"link": "x"})
        answer = await patch(caller, job, task="Clip")
        assert answer.status_code == 422 and "url" in answer.text
        answer = await patch(caller, job, task="Clpi")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_task")
        assert (await caller.get(job["links"]["self"])).json()["task"] == "echo"

    call(run, tasks=TASKS)


def test_a_full_queue_takes_no_moved_job():
    async def run(caller):
        await caller.one("Clip", {"url": "x"})
        job = await caller.one(payload={"url": "x"})
        answer = await patch(caller, job, task="Clip")
        assert answer.status_code == 429 and "retry-after" in answer.headers

    call(run, tasks=TASKS, jobs_max=1)


def test_what_runs_or_has_ended_stays_as_it_is():
    async def run(caller):
        job = await caller.one()
        (held,) = await lease(caller.front)
        answer = await patch(caller, job, priority=1)
        assert (answer.status_code, answer.json()["code"]) == (409, "state_conflict")
        assert "running" in answer.json()["detail"]
        now = caller.front.clock.now()
        await caller.front.broker.commit([settle.complete(held, output=b"1", now=now)], now=now)
        answer = await patch(caller, job, priority=1)
        assert answer.status_code == 409 and "succeeded" in answer.json()["detail"]
        assert (await caller.get(job["links"]["self"])).json()["priority"] == "normal"
        assert (await patch(caller, {"job_id": UNKNOWN}, priority=1)).status_code == 404

    call(run)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [(b"", 400, "JSON"), (b"{}", 422, "priority or task"), (b"[]", 422, "object"),
     (b'{"priority":10}', 422, "priority"), (b'{"priority":"urgent"}', 422, "high, normal, low"),
     (b'{"priority":true}', 422, "priority"), (b'{"prio":1}', 422, "prio"), (b'{"task":5}', 422, "task"),
     (b'{"task":"' + b"x" * 20_000 + b'"}', 413, "16384"), (b'\xff', 400, "JSON")],
)  # fmt: skip
def test_an_amendment_that_makes_no_sense_changes_nothing(body, status, says):
    async def run(caller):
        job = await caller.one()
        path = f"/v1/jobs/{job['job_id']}"
        answer = await caller.request(
            "PATCH", path, content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == status and says in answer.text, answer.text
        assert (await caller.get(path)).json()["priority"] == "normal"
        assert (await caller.request("PATCH", path, content=b"{}")).status_code == 415

    call(run)
