"""POST /v1/jobs: what is taken, and how it is told."""

import asyncio

import pytest

from tests.server.doors import CLIP, WAIT_MAX_S, call, finish

MIB = 1 << 20


def test_a_stored_job_is_answered_202_with_its_address_and_place():
    async def run(caller):
        answer = await caller.submit("Clip", {"url": "x"}, priority="high", metadata={"user": "7"})
        job = answer.json()
        assert answer.status_code == 202
        assert answer.headers["location"] == job["links"]["self"] == f"/v1/jobs/{job['job_id']}"
        assert (job["status"], job["state"], job["position"], job["priority"]) == (
            "PENDING",
            "queued",
            1,
            "high",
        )
        assert job["metadata"] == {"user": "7"} and job["eta"] is None and job["result"] is None
        assert (await caller.get(answer.headers["location"])).json()["job_id"] == job["job_id"]

    call(run)


def test_the_estimate_says_when_in_numbers_times_and_words():
    async def run(caller):
        caller.front.estimators["echo"].ran(items=1, took_s=40.0)
        caller.front.estimators["echo"].crew.count = 1
        eta = (await caller.one())["eta"]
        assert eta["p50_s"] == 40.0 < eta["p90_s"] and eta["p50_at"].endswith("Z")
        assert eta["message"] == "Your request has been received. Estimated completion: about 40 s."
        assert (await caller.one())["eta"]["p50_s"] == 80.0

    call(run)


GOOD = {
    "a hundred levels": b"[" * 100 + b"]" * 100,
    "2^53+1": b"9007199254740993",
    "2^63": b"9223372036854775808",
    "2^64": b"18446744073709551616",
    "300 digits": b"1" * 300,
    "-0": b"-0",
    "1E-400": b"1E-400",
    "spaces kept": b'{ "b" : 1,  "a":2 }',
    "doubled name": b'{"a":1,"a":2}',
    "odd names": b'{"__proto__":1,"constructor":2,"self":3,"args":4,"":5}',
    "NUL": b'"a\\u0000b"',
    "text for a formatter": b'"%s {} ${jndi:x} <script>\\u001b[31m\\r\\n"',
    "NFD": '"e\u0301"'.encode(),
    "brackets in text": b'"' + b"[{" * 5000 + b'"',
    "many empty lists": b"[" + b"[]," * 100_000 + b"[]]",
    "100,000 names": b"{" + b",".join(b'"k%d":0' % i for i in range(100_000)) + b"}",
}


@pytest.mark.parametrize("payload", GOOD.values(), ids=GOOD)
def test_a_payload_is_kept_to_the_byte(payload):
    async def run(caller):
        body = b'{"task":"echo","payload":' + payload + b"}"
        assert (await caller.raw(body)).status_code == 202
        _, verdicts = await caller.bulk(body)
        assert verdicts[0]["status"] == 202
        held = await caller.front.broker.lease(
            "echo", limit=2, lease_s=9, worker="w", now=caller.front.clock.now()
        )
        assert [lease.job.payload for lease in held] == [payload.strip()] * 2

    call(run, body_bytes_max=4 * MIB)


def test_of_doubled_names_the_last_counts_on_both_ways():
    body = b'{"task":"nope","priority":1,"payload":1,"task":"echo","priority":"low"}'

    async def run(caller):
        assert (await caller.raw(body)).json()["priority"] == "low"
        _, (verdict,) = await caller.bulk(body)
        assert (await caller.get(f"/v1/jobs/{verdict['job_id']}")).json()["priority"] == "low"

    call(run)


@pytest.mark.parametrize("first", [b"1e400", b"9" * 5000, b"null"], ids=["1e400", "5,000 digits", "null"])
def test_what_a_doubled_name_hides_matters_to_nobody(first):
    body = b'{"task":"echo","idempotency_key":"k","payload":%s,"payload":[1,{"a":2}]}' % first
    same = b'{"payload":[1,{"a":2}],"idempotency_key":"k","task":"echo","priority":null}'

    async def run(caller):
        answer = await caller.raw(body)
        assert answer.status_code == 202, answer.text
        _, verdicts = await caller.bulk(body, same, body.replace(b'"a":2', b'"a":3'))
        assert [verdict["status"] for verdict in verdicts] == [202, 202, 422]
        assert {verdict["job_id"] for verdict in verdicts[:2]} == {answer.json()["job_id"]}

    call(run)


def test_metadata_cannot_shadow_a_field_of_the_job():
    async def run(caller):
        job = await caller.one(metadata={"status": "COMPLETED", "job_id": "x"})
        assert job["status"] == "PENDING" and job["job_id"] != "x"

    call(run)


def test_a_deadline_before_run_at_is_a_contradiction():
    async def run(caller):
        answer = await caller.submit(run_at="2001-01-01T00:00:00Z", deadline=5)
        assert answer.status_code == 202
        at = (await caller.one())["created_at"]
        later = at[:2] + f"{int(at[2:4]):02d}" + at[4:]
        assert later == at
        future = _in(caller, 60)
        assert (await caller.submit(run_at=future, deadline=5)).status_code == 422

    call(run)


def test_a_ttl_counts_from_run_at():
    async def run(caller):
        job = await caller.one(run_at=_in(caller, 3600), ttl=1)
        assert job["state"] == "scheduled" and job["expires_at"] > job["run_at"]

    call(run)


def _in(caller, seconds):
    from forebay.server.times import stamp

    return stamp(caller.front.clock.now() + seconds)


@pytest.mark.parametrize("kind", ["single", "bulk"])
def test_prefer_wait_answers_the_finished_job_or_the_accepted_one(kind):
    async def run(caller):
        waiting = asyncio.ensure_future(caller.submit(headers={"prefer": "respond-async, wait=20"}))
        async with asyncio.timeout(WAIT_MAX_S):
            while not caller.door.waiters.held:
                await asyncio.sleep(0)
        await finish(caller.front, output=b'{"x":1}')
        answer = await waiting
        assert answer.status_code == 200 and answer.json()["result"] == {"x": 1}
        assert answer.headers["preference-applied"] == "wait=20"
        late = await caller.submit(headers={"prefer": "wait=0"})
        assert late.status_code == 202 and late.json()["status"] == "PENDING"

    call(run)


def test_a_task_that_takes_any_json_has_no_schema_to_pay_for():
    async def run(caller):
        for payload in (None, 1, "x", [1], {"a": 1}, True):
            assert (await caller.submit(payload=payload)).status_code == 202

    call(run)
    assert CLIP["required"] == ["url"]
