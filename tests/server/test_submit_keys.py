"""POST /v1/jobs: one key, one job."""

import asyncio
import json

import pytest

from tests.server.doors import call, finish


@pytest.mark.parametrize("way", ["header", "field", "line"])
def test_a_key_makes_one_job_whatever_the_order_of_names(way):
    async def run(caller):
        async def send(body, key="clip-17"):
            if way == "header":
                return await caller.raw(json.dumps(body).encode(), {"idempotency-key": key})
            if way == "field":
                return await caller.raw(json.dumps(body | {"idempotency_key": key}).encode())
            _, (verdict,) = await caller.bulk(body | {"idempotency_key": key})
            return verdict

        def read(answer):
            if way == "line":
                return answer["status"], answer.get("job_id"), answer.get("replayed"), answer.get("code")
            replayed = answer.headers.get("idempotency-replayed") == "true" or None
            return answer.status_code, answer.json().get("job_id"), replayed, answer.json().get("code")

        first = read(await send({"task": "echo", "payload": {"a": 1, "b": 2}, "priority": 1}))
        again = read(await send({"priority": 1, "payload": {"b": 2, "a": 1}, "task": "echo"}))
        assert again == (202, first[1], True, None)
        assert read(await send({"task": "echo", "payload": {"a": 2}}))[::3] == (422, "idempotency_conflict")
        assert read(await send({"task": "echo", "payload": {"a": 2}}, "other"))[1] != first[1]
        await finish(caller.front)
        again = read(await send({"priority": 1, "payload": {"b": 2, "a": 1}, "task": "echo"}))
        assert again == (200, first[1], True, None)

    call(run)


def test_a_hundred_equal_submissions_at_once_are_one_job():
    async def run(caller):
        answers = await asyncio.gather(*(caller.submit(headers={"idempotency-key": "k"}) for _ in range(100)))
        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.json()["job_id"] for answer in answers}) == 1
        assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
        assert await caller.depth() == 1

    call(run)


def test_a_key_in_header_and_body_must_be_the_same():
    async def run(caller):
        answer = await caller.submit(idempotency_key="a", headers={"idempotency-key": "b"})
        assert answer.status_code == 422
        assert (await caller.submit(idempotency_key="a", headers={"idempotency-key": "a"})).status_code == 202

    call(run)
