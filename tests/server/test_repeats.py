"""A repeat of what was accepted has its job, also where everything new is refused."""

import asyncio
import json

import pytest

from forebay.brokers.memory import MemoryBroker
from forebay.core.task import TaskSpec
from forebay.observe import metrics
from tests.server.doors import Caller, a_front, admissions, call, exchange, finish, serving, status_of

ONE = {"echo": TaskSpec(name="echo")}
BODY = {"task": "echo", "payload": {"a": 1}}
OTHER = {"task": "echo", "payload": {"a": 2}}


async def send(caller, way, body, key):
    """Return (status, job id, replayed, code) whichever way it went in."""
    if way == "line":
        answer, verdicts = await caller.bulk(body | ({"idempotency_key": key} if key else {}))
        told = verdicts[0] if verdicts else answer.json()
        return told["status"], told.get("job_id"), told.get("replayed"), told.get("code")
    if way == "header" or key is None:
        answer = await caller.raw(json.dumps(body).encode(), {"idempotency-key": key} if key else {})
    else:
        answer = await caller.raw(json.dumps(body | {"idempotency_key": key}).encode())
    told = answer.json()
    replayed = answer.headers.get("idempotency-replayed") == "true" or None
    return answer.status_code, told.get("job_id"), replayed, told.get("code")


async def drain_queue(caller):
    assert (await caller.post("/v1/queues/echo/drain")).status_code == 200


async def drain_server(caller):
    caller.front.lifecycle.begin_drain()


async def nothing(caller):
    return None


CLOSED = [
    ({"jobs_max": 1, "tasks": ONE}, nothing, 429, "full"),
    ({"jobs_max": 1}, nothing, 429, "full"),
    ({}, drain_queue, 503, "draining"),
    ({}, drain_server, 503, "draining"),
]


@pytest.mark.parametrize("way", ["header", "field", "line"])
@pytest.mark.parametrize(("options", "close", "status", "code"), CLOSED)
def test_a_repeat_is_answered_while_everything_new_is_refused(way, options, close, status, code):
    async def run(caller):
        _, job_id, _, _ = await send(caller, way, BODY, "k")
        await close(caller)
        again = await send(caller, way, BODY, "k")
        assert again == (202, job_id, True, None)
        assert (await send(caller, way, OTHER, "k"))[::3] == (422, "idempotency_conflict")
        for key in ("new", None):
            refused = await send(caller, way, BODY, key)
            assert refused[0] == status and code in refused[3]
        await finish(caller.front)
        if status == 503:  # a full queue has room now
            assert await send(caller, way, BODY, "k") == (200, job_id, True, None)

    call(run, **options)


def test_lines_that_repeat_and_lines_that_do_not_fit_keep_their_order():
    async def run(caller):
        known = (await caller.bulk(BODY | {"idempotency_key": "k"}))[1][0]["job_id"]
        lines = [
            BODY,
            BODY | {"idempotency_key": "k"},
            BODY | {"idempotency_key": "n"},
            OTHER | {"idempotency_key": "k"},
        ]
        _, verdicts = await caller.bulk(*lines, BODY, BODY | {"idempotency_key": "k"})
        assert [verdict["status"] for verdict in verdicts] == [202, 202, 429, 422, 429, 202]
        assert verdicts[1]["job_id"] == verdicts[5]["job_id"] == known

    call(run, jobs_max=2)


def test_a_repeat_that_was_answered_is_not_counted_as_refused(monkeypatch):
    monkeypatch.setattr(metrics, "RENDER_FRESH_S", -1.0)

    async def run(caller):
        for way in ("header", "line"):
            for body, key in ((BODY, "k"), (OTHER, "k"), (BODY, "new")):
                await send(caller, way, body, key)
        counted = await admissions(caller)
        assert counted["accepted", ""] == 1
        assert counted["replayed", ""] == 1
        assert counted["refused", "idempotency_conflict"] == 2
        assert counted["refused", "full"] == 2

    call(run, jobs_max=1)


def test_a_body_that_the_client_holds_back_is_asked_for_only_with_a_key():
    async def run():
        async with serving(a_front(jobs_max=1, tasks=ONE)) as (port, _):
            good = json.dumps(BODY).encode()
            head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
            keyed = head + b"Idempotency-Key: k\r\nContent-Length: %d\r\n" % len(good)
            assert status_of(await exchange(port, keyed + b"\r\n" + good)) == 202
            expecting = b"Expect: 100-continue\r\n\r\n"
            asked = head + b"Content-Length: %d\r\n" % len(good) + expecting
            answer = await exchange(port, asked, until=b"}")  # the body is held back for ever
            assert status_of(answer) == 429
            answer = await exchange(port, keyed + expecting, good)
            assert b"100 Continue" in answer and b"idempotency-replayed: true" in answer.lower()

    asyncio.run(run())


def test_a_drain_of_a_queue_outlives_the_process_and_resume_ends_it_and_a_pause():
    async def run():
        broker = MemoryBroker()
        async with Caller(a_front(broker=broker)) as caller:
            await caller.post("/v1/queues/echo/drain")
            await caller.post("/v1/queues/echo/pause")
        async with Caller(a_front(broker=broker)) as caller:
            shown = (await caller.get("/v1/queues/echo")).json()
            assert shown["draining"] is shown["paused"] is True
            assert (await caller.submit()).status_code == 503
            shown = (await caller.post("/v1/queues/echo/resume")).json()
            assert shown["draining"] is shown["paused"] is False
            assert (await caller.submit()).status_code == 202

    asyncio.run(run())
