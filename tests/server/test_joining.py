"""Equal submissions of a task that coalesces: one job, many callers."""

import asyncio

from forebay.core.task import TaskSpec
from tests.server.doors import call, finish, lease

TASKS = {
    "echo": TaskSpec(name="echo", coalesce=True),
    "kept": TaskSpec(name="kept", coalesce=True, cache_s=60.0),
    "alone": TaskSpec(name="alone"),
}


def joined(answer):
    return answer.headers.get("forebay-joined") == "true"


def test_equal_submissions_get_the_job_that_does_the_work():
    async def run(caller):
        first = await caller.submit(payload={"a": 1, "b": [2]})
        again = await caller.raw(b'{"payload":{"b":[2],  "a":1},"task":"echo","metadata":{"user":"2"}}')
        assert (first.status_code, again.status_code) == (202, 202)
        assert not joined(first) and joined(again)
        assert again.json()["job_id"] == first.json()["job_id"]
        assert again.headers["location"] == first.headers["location"]
        assert (await caller.get("/v1/queues/echo")).json()["open"] == 1

    call(run, tasks=TASKS)


def test_what_differs_in_anything_that_matters_is_work_of_its_own():
    async def run(caller):
        await caller.submit(payload=1)
        for task, options in (
            ("echo", {"payload": 2}),
            ("echo", {"payload": 1.0}),
            ("echo", {"payload": 1, "run_at": "2100-01-01T00:00:00Z"}),
            ("kept", {"payload": 1}),
            ("alone", {"payload": 3}),
            ("alone", {"payload": 3}),
        ):
            answer = await caller.submit(task, **options)
            if "run_at" not in options:
                assert answer.status_code == 202 and not joined(answer), (task, options)

    call(run, tasks=TASKS)


def test_tenants_never_join_each_others_work():
    async def run(caller):
        first = await caller.submit(headers={"forebay-tenant": "a"})
        other = await caller.submit(headers={"forebay-tenant": "b"})
        assert (first.status_code, other.status_code) == (202, 202) and not joined(other)
        assert joined(await caller.submit(headers={"forebay-tenant": "b"}))

    call(run, tasks=TASKS)


def test_a_fresh_result_answers_equal_submissions_and_is_not_computed_again():
    async def run(caller):
        await caller.submit("kept", "x")
        job_id = await finish(caller.front, "kept", output=b'"once"')
        answer = await caller.submit("kept", "x", headers={"prefer": "wait=5"})
        assert answer.status_code == 200 and joined(answer)
        assert (answer.json()["job_id"], answer.json()["result"]) == (job_id, "once")
        await caller.submit("echo", "x")
        await finish(caller.front, "echo")
        assert not joined(await caller.submit("echo", "x"))  # no cache: only what has not ended

    call(run, tasks=TASKS)


def test_whoever_joins_may_wait_for_the_end_of_the_job():
    async def run(caller):
        first = await caller.submit(payload=1)
        waiting = asyncio.ensure_future(caller.submit(payload=1, headers={"prefer": "wait=20"}))
        while not caller.door.waiters.held:
            await asyncio.sleep(0)
        await finish(caller.front)
        answer = await waiting
        assert answer.status_code == 200 and answer.headers["preference-applied"] == "wait=20"
        assert (answer.json()["job_id"], answer.json()["result"]) == (first.json()["job_id"], "done")

    call(run, tasks=TASKS)


def test_lines_join_jobs_and_each_other_and_are_counted():
    async def run(caller):
        await caller.submit(payload=1)
        lines = [{"task": "echo", "payload": payload} for payload in (1, 2, 2)]
        _, verdicts = await caller.bulk(*lines)
        assert [verdict.get("joined", False) for verdict in verdicts] == [True, False, True]
        assert [verdict["status"] for verdict in verdicts] == [202] * 3
        assert verdicts[1]["job_id"] == verdicts[2]["job_id"]
        text = (await caller.get("/metrics")).text
        assert 'inference_admission_total{decision="joined",reason="",task="echo"} 2.0' in text

    call(run, tasks=TASKS)


def test_the_key_of_whoever_joined_is_kept():
    async def run(caller):
        first = await caller.submit(payload=1)
        key = {"idempotency-key": "k"}
        assert joined(await caller.submit(payload=1, headers=key))
        again = await caller.submit(payload=1, headers=key)
        assert again.headers["idempotency-replayed"] == "true" and not joined(again)
        assert again.json()["job_id"] == first.json()["job_id"]
        assert (await caller.submit(payload=2, headers=key)).status_code == 422
        assert len(await lease(caller.front, limit=9)) == 1

    call(run, tasks=TASKS)
