"""Budgets at the door: parallel producers share one rate, and each refused one is told its turn exactly."""

import asyncio
import json
import re

import pytest

from forebay.core.admission import Reason, Rejected
from forebay.core.budget import TENANT_BUDGETS_MAX, Budgets
from forebay.core.task import TaskSpec
from forebay.observe import metrics
from tests.server.doors import Caller, a_front, exchange, finish, serving
from tests.server.test_keys import KEYS, ROOT, A, B, Still, bearer
from tests.server.test_predict import Basin


def share(name):
    return {"forebay-budget": name}


def call(test, *, declared=None, **kwargs):
    async def run():
        front = a_front(clock=Still(), **kwargs)
        if declared:
            front.budgets = Budgets(declared)
        async with asyncio.timeout(30), Caller(front) as caller:
            return await test(caller)

    return asyncio.run(run())


def test_producers_share_a_rate_and_the_refused_come_back_one_by_one():
    async def tried(caller):
        codes = [(await caller.submit(headers=share("ci=10/s"))).status_code for _ in range(3)]
        assert codes == [202, 202, 429]
        refused = [await caller.submit(headers=share("ci")) for _ in range(3)]
        problems = [answer.json() for answer in refused]
        assert {(p["code"], p["limit"]) for p in problems} == {("over_budget", 10)}
        assert [p["retry_after_s"] for p in problems] == [0.201, 0.301, 0.401]
        assert [answer.headers["retry-after-ms"] for answer in refused] == ["201", "301", "401"]
        assert {answer.headers["retry-after"] for answer in refused} == {"1"}
        assert (await caller.submit()).status_code == 202, "who names none is counted by none"
        assert (await caller.submit(headers=share("other=1/s"))).status_code == 202
        began = caller.front.clock.at
        for after_s in (0.101, 0.201, 0.301, 0.401):
            caller.front.clock.at = began + after_s
            assert (await caller.submit(headers=share("ci"))).status_code == 202

    call(tried)


def test_as_many_lines_as_are_left_are_taken_and_the_rest_is_told_one_time():
    async def tried(caller):
        lines = [{"task": "echo", "payload": n} for n in range(120)]
        _, verdicts = await caller.bulk(*lines, headers=share("ci=300/s"))
        assert [v["status"] for v in verdicts] == [202] * 60 + [429] * 60
        told = [v["retry_after_s"] for v in verdicts[60:]]
        assert told == sorted(told) and told[-1] == 0.201 and len(set(told)) <= 2, "the last line comes late"
        assert {v["code"] for v in verdicts[60:]} == {"over_budget"}
        caller.front.clock.at += 0.201
        _, verdicts = await caller.bulk(*lines[60:], headers=share("ci=300/s"))
        assert [v["status"] for v in verdicts] == [202] * 60

    call(tried)


def test_a_repeat_of_what_was_taken_is_answered_over_budget_too():
    async def tried(caller):
        headers = share("ci=1/s")
        assert (await caller.submit(headers=headers)).status_code == 202
        job = await caller.one(headers=headers | {"idempotency-key": "k"})
        again = await caller.submit(headers=headers | {"idempotency-key": "k"})
        assert (again.status_code, again.json()["job_id"]) == (202, job["job_id"])
        assert again.headers["idempotency-replayed"] == "true"
        assert (await caller.submit(headers=headers)).status_code == 429

    call(tried)


def test_what_the_queue_refuses_costs_nothing_of_the_budget():
    async def tried(caller):
        codes = [(await caller.submit(headers=share("ci=10/s"))).json().get("code") for _ in range(4)]
        assert codes == [None, "queue_full", "queue_full", "queue_full"]
        (budget,) = (await caller.get("/v1/budgets")).json()["items"]
        assert (budget["granted"], budget["refused"], budget["left"]) == (1, 0, 1.0)

    call(tried, jobs_max=1)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("a b", "a name is"),
        ("ci=0/s", "not a rate"),
        ("ci=soon", "not a rate"),
        ("ci", "name its rate too, like ci=300/s"),
        ("nightly=9/s", "has 5 jobs a second for all who share it, not 9"),
    ],
)
def test_a_budget_that_is_named_wrongly_is_one_clear_line(named, said):
    async def tried(caller):
        for answer in (
            await caller.submit(headers=share(named)),
            (await caller.bulk({"task": "echo", "payload": 1}, headers=share(named)))[0],
        ):
            problem = answer.json()
            assert (answer.status_code, problem["errors"][0]["path"]) == (422, "Forebay-Budget")
            assert said in problem["detail"]
        assert await caller.depth() == 0
        assert (await caller.submit(headers=share("nightly"))).status_code == 202

    call(tried, declared={"nightly": 5.0})


def test_requests_and_jobs_share_a_budget():
    async def tried(caller):
        caller.front.requests = basin = Basin()
        headers = share("ci=10/s")
        assert (await caller.post("/v1/predict/echo", json=1, headers=headers)).status_code == 200
        assert (await caller.submit(headers=headers)).status_code == 202
        refused = await caller.post("/v1/predict/echo", json=1, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (429, "over_budget")
        assert refused.json()["retry_after_s"] == 0.101 and len(basin.jobs) == 1
        assert (await caller.post("/v1/predict/echo", json=1)).status_code == 200
        as_job = headers | {"prefer": "respond-async"}
        assert (await caller.post("/v1/predict/echo", json=1, headers=as_job)).status_code == 429
        caller.front.clock.at += 0.1
        basin.refuses = Rejected(Reason.FULL, 1.0, 5)
        full = await caller.post("/v1/predict/echo", json=1, headers=headers)
        assert full.json()["code"] == "queue_full"
        (budget,) = (await caller.get("/v1/budgets")).json()["items"]
        assert (budget["granted"], budget["refused"], budget["left"]) == (2, 2, 1.0)

    call(tried)


def test_two_budgets_are_none():
    async def tried(caller):
        twice = [("forebay-budget", "ci=1/s"), ("forebay-budget", "other=1/s")]
        answer = await caller.post("/v1/jobs", json={"task": "echo", "payload": 1}, headers=twice)
        assert answer.status_code == 400 and "twice" in answer.json()["detail"]

    call(tried)


def test_tenants_have_budgets_of_their_own_and_see_no_other():
    async def tried(caller):
        declared = share("ci")
        for key in (A, B):
            for _ in range(2):
                assert (await caller.submit(headers=bearer(key) | declared)).status_code == 202
            assert (await caller.submit(headers=bearer(key) | declared)).status_code == 429
        seen = {
            key: [b["tenant"] for b in (await caller.get("/v1/budgets", headers=bearer(key))).json()["items"]]
            for key in (A, B, ROOT)
        }
        assert seen == {A: ["a"], B: ["b"], ROOT: ["a", "b"]}

    call(tried, keys=KEYS, declared={"ci": 1.0})


def test_budgets_in_use_are_listed_and_counted_and_idle_ones_vanish(monkeypatch):
    monkeypatch.setattr(metrics, "RENDER_FRESH_S", -1.0)

    async def tried(caller):
        assert (await caller.get("/v1/budgets")).json() == {"items": [], "next_cursor": None}
        for _ in range(4):
            await caller.submit(headers=share("ci=10/s"))
        assert (await caller.get("/v1/budgets")).json()["items"] == [
            {"name": "ci", "tenant": "", "rate_per_s": 10.0, "burst": 2.0, "left": 0.0, "line_s": 0.2,
             "granted": 2, "refused": 2, "declared": False}
        ]  # fmt: skip
        text = (await caller.get("/metrics")).text
        assert 'inference_admission_total{decision="refused",reason="over_budget",task="echo"} 2.0' in text
        assert 'inference_budget_jobs_total{decision="granted"} 2.0' in text
        assert 'inference_budget_jobs_total{decision="refused"} 2.0' in text
        assert '"ci"' not in text, "names come from outside"
        caller.front.clock.at += 100.0
        assert (await caller.get("/v1/budgets")).json()["items"] == []

    call(tried)


def test_the_number_of_budgets_is_bounded_and_reaching_it_is_counted():
    async def tried(caller):
        for n in range(TENANT_BUDGETS_MAX):
            assert (await caller.submit(headers=share(f"b{n}=1/s"))).status_code == 202
        refused = await caller.submit(headers=share("more=1/s"))
        assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
        assert refused.json()["limit"] == TENANT_BUDGETS_MAX and refused.json()["retry_after_s"] == 60.0
        assert 'inference_bounds_reached_total{bound="budgets"} 1.0' in (await caller.get("/metrics")).text

    call(tried)


def test_a_refusal_of_a_queue_tells_what_a_job_takes():
    async def tried(caller):
        caller.front.estimators["echo"].ran(items=1, took_s=0.05)
        await caller.submit()
        refused = (await caller.submit()).json()
        assert (refused["code"], refused["service_s"]) == ("queue_full", 0.05)
        _, (verdict,) = await caller.bulk({"task": "echo", "payload": 1})
        assert verdict["service_s"] == 0.05
        await finish(caller.front)
        await caller.submit(task="Clip", payload={"url": "u"})
        assert "service_s" not in (await caller.submit(task="Clip", payload={"url": "u"})).json()

    call(tried, jobs_max=1)


def test_one_connection_counts_each_request_by_what_that_one_names():
    async def run():
        async with serving(a_front(tasks={"echo": TaskSpec(name="echo")})) as (port, _):
            body = json.dumps({"task": "echo", "payload": 1}).encode()
            head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            length = b"Content-Length: %d\r\n" % len(body)
            named = head + length + b"Forebay-Budget: ci=1/m\r\n\r\n" + body
            unnamed = head + length + b"\r\n" + body
            last = head + length + b"Connection: close\r\n\r\n" + body
            answer = await exchange(port, named * 3 + unnamed + last)
            found = re.findall(rb"HTTP/1\.1 (\d+)", answer)
            assert found == [b"202", b"202", b"429", b"202", b"202"]

    asyncio.run(run())
