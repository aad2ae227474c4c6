"""POST /v1/jobs: bounds, drains and a store that fails."""

import asyncio

import pytest

from forebay.core.task import TaskSpec
from forebay.errors import StoreFullError, StoreUnavailableError
from forebay.observe import metrics
from tests.server.doors import a_front, admissions, call, exchange, serving, status_of


def test_a_full_queue_refuses_with_the_time_to_come_back_and_stores_exactly_its_bound():
    async def run(caller):
        answers = [await caller.submit() for _ in range(15)]
        assert [answer.status_code for answer in answers] == [202] * 10 + [429] * 5
        refused = answers[-1]
        problem = refused.json()
        assert problem["code"] == "queue_full" and problem["limit"] == 10
        assert int(refused.headers["retry-after"]) >= 1
        assert int(refused.headers["retry-after-ms"]) >= 1000 * problem["retry_after_s"] - 1
        assert refused.headers["content-type"] == "application/problem+json"
        assert (await caller.get("/v1/queues/echo")).json()["open"] == 10
        assert len({answer.json()["retry_after_s"] for answer in answers[10:]}) > 1  # no single wave
        text = (await caller.get("/metrics")).text
        assert 'inference_admission_total{decision="refused",reason="full",task="echo"} 5.0' in text
        assert 'inference_arrivals_total{task="echo"} 15.0' in text

    call(run, jobs_max=10)


def test_what_is_left_of_the_bound_goes_to_the_first_lines():
    async def run(caller):
        _, verdicts = await caller.bulk(*[{"task": "echo", "payload": i} for i in range(15)])
        assert [verdict["status"] for verdict in verdicts] == [202] * 10 + [429] * 5
        assert [verdict["line"] for verdict in verdicts] == list(range(1, 16))
        assert all(verdict["retry_after_s"] > 0 for verdict in verdicts[10:])
        text = (await caller.get("/metrics")).text
        assert 'inference_arrivals_total{task="echo"} 15.0' in text
        assert 'inference_admission_total{decision="accepted",reason="",task="echo"} 10.0' in text
        assert 'inference_admission_total{decision="refused",reason="full",task="echo"} 5.0' in text

    call(run, jobs_max=10)


def test_only_what_became_a_job_is_counted_as_accepted(monkeypatch):
    monkeypatch.setattr(metrics, "RENDER_FRESH_S", -1.0)

    async def run(caller):
        key = {"idempotency-key": "k"}
        for payload in (1, 1, 2):
            await caller.submit(payload=payload, headers=key)
        lines = [
            {"task": "echo", "payload": p, "idempotency_key": k} for p, k in ((1, "k"), (2, "k"), (3, "n"))
        ]
        await caller.bulk(*lines, {"task": "Clip", "payload": {"url": "u"}})
        before = await jobs_kept(caller)
        counted = await admissions(caller)
        assert counted["accepted", ""] == before
        assert counted["replayed", ""] == 2
        assert counted["refused", "idempotency_conflict"] == 2

        async def full(jobs, *, now):
            raise StoreFullError

        caller.front.broker.enqueue = full
        assert (await caller.submit()).status_code == 507
        await caller.bulk({"task": "echo", "payload": 1}, {"task": "echo", "payload": 2})
        counted = await admissions(caller)
        assert counted["accepted", ""] == before == await jobs_kept(caller)
        assert counted["refused", "store_full"] == 3

    async def jobs_kept(caller):
        return len((await caller.get("/v1/jobs?limit=500")).json()["items"])

    call(run)


def test_the_bound_in_bytes_holds_too():
    async def run(caller):
        answers = [await caller.submit(payload="x" * 300) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [202] * 3 + [429] * 2
        assert (await caller.submit(payload="x" * 2000)).status_code == 413

    call(run, bytes_max=1000)


def test_bursts_at_once_never_pass_the_bound():
    async def run(caller):
        answers = await asyncio.gather(*(caller.submit() for _ in range(50)))
        assert sorted(answer.status_code for answer in answers) == [202] * 10 + [429] * 40
        assert await caller.depth() == 10

    call(run, jobs_max=10)


def test_a_draining_server_refuses_new_work_and_still_answers_about_old():
    async def run(caller):
        job = await caller.one()
        caller.front.lifecycle.begin_drain()
        for answer in (await caller.submit(), (await caller.bulk({"task": "echo", "payload": 1}))[0]):
            assert answer.status_code == 503 and answer.json()["code"] == "draining"
            assert answer.headers["connection"] == "close" and int(answer.headers["retry-after"]) >= 1
        assert (await caller.get(job["links"]["self"])).status_code == 200
        assert (await caller.get("/readyz")).status_code == 503
        assert (await caller.get("/healthz")).status_code == 200

    call(run)


class _Failing:
    """A broker whose writes fail."""

    def __init__(self, inner, error):
        self.inner = inner
        self.error = error

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def enqueue(self, jobs, *, now):
        if self.error is not None:
            raise self.error
        return await self.inner.enqueue(jobs, now=now)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoreFullError(), 507, "store_full"),
        (StoreUnavailableError(), 503, "store_unavailable"),
        (OSError(5, "secret /path"), 503, "store_unavailable"),
    ],
)
def test_a_store_that_fails_is_a_clear_refusal_and_makes_the_server_unready(error, status, code):
    async def run(caller):
        broker = caller.front.broker = _Failing(caller.front.broker, error)
        answer = await caller.submit()
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert "secret" not in answer.text and int(answer.headers["retry-after"]) >= 1
        _, verdicts = await caller.bulk({"task": "echo", "payload": 1}, {"task": "nope", "payload": 1})
        assert [verdict["status"] for verdict in verdicts] == [status, 404]
        ready = await caller.get("/readyz")
        assert ready.status_code == 503 and ready.json()["reason"] == code
        broker.error = None
        assert (await caller.submit()).status_code == 202
        assert (await caller.get("/readyz")).status_code == 200

    call(run)


def test_the_only_full_queue_is_refused_before_the_body_is_read():
    async def run():
        front = a_front(jobs_max=1, tasks={"echo": TaskSpec(name="echo")})
        async with serving(front) as (port, _):
            good = b'{"task":"echo","payload":1}'
            head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            whole = head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(good) + good
            assert status_of(await exchange(port, whole)) == 202
            announced = head + b"Content-Length: 900000\r\nExpect: 100-continue\r\n\r\n"
            answer = await exchange(port, announced)
            assert status_of(answer) == 429 and b"100 Continue" not in answer

    asyncio.run(run())
