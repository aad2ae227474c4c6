"""Quotas of tenants at the door: rates, open jobs, bytes; every answer tells what is left."""

import asyncio
import json
import re

import pytest

from forebay.keys import KeyRing, read_ring
from tests.server.doors import Caller, a_front, finish, kill, lease
from tests.server.test_keys import Still, bearer
from tests.server.test_predict import Basin

A, A2, B, ROOT = (f"fb_{name}_0123456789abcdefghijklmnopqrstuvwxyz" for name in ("a", "a2", "b", "root"))


def limited(test, clock=None, **limits):
    """Run against a door where tenant a has limits, through both its keys, and tenant b has none."""
    keys = json.dumps({
        A: {"tenant": "a", **limits}, A2: {"tenant": "a"}, B: {"tenant": "b"},
        ROOT: {"tenant": "ops", "scopes": ["admin"]},
    })  # fmt: skip

    async def run():
        async with asyncio.timeout(30), Caller(a_front(keys=keys, clock=clock or Still())) as caller:
            return await test(caller)

    return asyncio.run(run())


def test_a_rate_counts_jobs_of_all_keys_of_a_tenant_and_of_no_other():
    async def tried(caller):
        codes = [(await caller.submit(headers=bearer(key))).status_code for key in (A, A2, A)]
        assert codes == [202, 202, 429]
        refused = await caller.submit(headers=bearer(A2))
        problem = refused.json()
        assert (problem["code"], problem["limit"]) == ("rate_limited", 2)
        assert 0.5 <= problem["retry_after_s"] <= 0.75 and refused.headers["retry-after"] == "1"
        assert (await caller.submit(headers=bearer(B))).status_code == 202
        caller.front.clock.at += problem["retry_after_s"]
        assert (await caller.submit(headers=bearer(A))).status_code == 202

    limited(tried, rate="2/s")


def test_every_answer_of_a_tenant_with_a_rate_tells_what_is_left():
    async def tried(caller):
        seen = [
            await caller.get("/v1/jobs", headers=bearer(A)),
            await caller.submit(headers=bearer(A)),
            await caller.get("/v1/jobs/none", headers=bearer(A)),
            (
                await caller.bulk(
                    {"task": "echo", "payload": 1}, {"task": "echo", "payload": 1}, headers=bearer(A2)
                )
            )[0],
            await caller.get("/v1/jobs", headers=bearer(A)),
        ]
        assert {answer.headers["ratelimit-policy"] for answer in seen} == {
            '"jobs";q=10;w=2, "bytes";q=1000;w=1;qu="content-bytes"'
        }
        left = [re.findall(r"r=(\d+)", answer.headers["ratelimit"])[0] for answer in seen]
        assert left[:3] == ["10", "9", "9"] and left[4] == "7"
        assert seen[4].headers["ratelimit"] == '"jobs";r=7;t=1, "bytes";r=997;t=1'
        for key in (B, ROOT):
            assert "ratelimit" not in (await caller.get("/v1/jobs", headers=bearer(key))).headers
        assert (await caller.get("/healthz")).status_code == 200

    limited(tried, rate="5/s", burst=10, bytes_rate="1KB/s")


def test_lines_count_one_by_one():
    async def tried(caller):
        lines = [
            {"task": task, "payload": n} for n, task in enumerate(["echo", "echo", "echo", "echo", "echo"])
        ]
        lines.insert(1, {"task": "Clip", "payload": {"url": "u"}})
        lines.append({"task": "nope", "payload": 1})
        _, verdicts = await caller.bulk(*lines, headers=bearer(A))
        assert sorted(v["status"] for v in verdicts) == [202] * 4 + [404] + [429] * 2
        assert {v.get("code") for v in verdicts} == {None, "unknown_task", "rate_limited"}
        assert all(v["retry_after_s"] > 0 for v in verdicts if v["status"] == 429)

    limited(tried, rate="4/s")


def test_open_jobs_are_bounded_over_all_tasks_and_places_come_free_when_jobs_end():
    async def tried(caller):
        lines = [{"task": "echo", "payload": 1}, {"task": "Clip", "payload": {"url": "u"}}] * 2
        _, verdicts = await caller.bulk(*lines, headers=bearer(A))
        assert [v["status"] for v in verdicts].count(202) == 3
        (refused,) = [v for v in verdicts if v["status"] == 429]
        assert (refused["code"], refused["limit"]) == ("quota_exceeded", 3) and refused["retry_after_s"] > 0
        assert (await caller.submit(headers=bearer(A2))).json()["code"] == "quota_exceeded"
        assert (await caller.submit(headers=bearer(B))).status_code == 202
        await lease(caller.front, "Clip")  # what runs is held as well
        assert (await caller.submit(headers=bearer(A))).status_code == 429
        await finish(caller.front)
        assert (await caller.submit(headers=bearer(A))).status_code == 202

    limited(tried, jobs_max=3)


def test_bytes_of_open_jobs_are_bounded():
    async def tried(caller):
        assert (await caller.submit(payload="x" * 60, headers=bearer(A))).status_code == 202
        refused = await caller.submit(payload="x" * 60, headers=bearer(A))
        assert (refused.status_code, refused.json()["limit"]) == (429, 100)
        assert (await caller.submit(payload="x" * 20, headers=bearer(A))).status_code == 202

    limited(tried, bytes_max=100)


def test_a_redrive_counts_like_a_submission():
    async def tried(caller):
        await caller.submit(headers=bearer(A))
        await kill(caller.front)
        assert (await caller.submit(headers=bearer(A))).status_code == 202
        answer = await caller.post("/v1/dead-letters/redrive", json={"task": "echo"}, headers=bearer(A))
        assert [item.get("code") for item in answer.json()["items"]] == ["quota_exceeded"]

    limited(tried, jobs_max=1)


def test_what_the_queue_refuses_costs_no_token():
    async def run():
        keys = json.dumps({A: {"tenant": "a", "rate": 2}})
        async with Caller(a_front(keys=keys, clock=Still(), jobs_max=1)) as caller:
            codes = [(await caller.submit(headers=bearer(A))).json().get("code") for _ in range(4)]
            assert codes == [None, "queue_full", "queue_full", "queue_full"]

    asyncio.run(run())


def test_new_keys_do_not_fill_the_buckets_again(tmp_path):
    async def tried(caller):
        watchman = caller.front.watchman
        assert (await caller.submit(headers=bearer(A))).status_code == 202
        watchman.use(KeyRing(watchman.ring.keys, dict(watchman.ring.limits)))
        assert (await caller.submit(headers=bearer(A))).status_code == 429
        watchman.use(read_ring(json.dumps({A: {"tenant": "a", "rate": 2}}), None))
        assert (await caller.submit(headers=bearer(A))).status_code == 202

    limited(tried, rate=1)


@pytest.mark.parametrize("limit", ["rate", "jobs_max"])
def test_refusals_are_counted_by_a_word_of_a_closed_list_and_not_by_tenant(limit):
    async def tried(caller):
        for _ in range(3):
            await caller.submit(headers=bearer(A))
        text = (await caller.get("/metrics", headers=bearer(ROOT))).text
        word = {"rate": "tenant_rate", "jobs_max": "quota_jobs"}[limit]
        assert f'inference_admission_total{{decision="refused",reason="{word}",task="echo"}} 2.0' in text
        assert "tenant=" not in text and '"a"' not in text

    limited(tried, **{limit: 1})


def test_open_requests_count_among_what_a_tenant_may_hold():
    async def tried(caller):
        caller.front.requests = basin = Basin()
        basin.holds = 1
        assert (await caller.submit(headers=bearer(A))).status_code == 202
        refused = [
            await caller.submit(headers=bearer(A)),
            await caller.post("/v1/predict/echo", json={"x": 1}, headers=bearer(A)),
        ]
        assert [one.json()["code"] for one in refused] == ["quota_exceeded"] * 2
        assert not basin.jobs, "it was never let in"
        basin.holds = 0
        answer = await caller.post("/v1/predict/echo", json={"x": 1}, headers=bearer(A))
        assert answer.status_code == 200, answer.text

    limited(tried, jobs_max=2)
