"""POST /v1/predict/{task}: the door of requests, in front of a basin that answers as told."""

import asyncio
import json

import pytest

from forebay.core.admission import Offer, Reason, Rejected
from forebay.core.job import JobError, Lease
from forebay.core.knocks import Knocks
from forebay.core.requests import End, Ended, Request
from forebay.core.task import TaskSpec
from forebay.core.tenant import Held as HeldBy
from forebay.ports.requests import Held
from forebay.server.live import Hub
from forebay.server.way_in import DEADLINE_MAX_S
from tests.conformance.engines import StandingClock
from tests.server.doors import CLIP, a_front, admissions, call, condemn

PATH = "/v1/predict/echo"


class Basin:
    """Lets in or refuses as told, and answers at once with `end`, or never."""

    def __init__(self):
        self.refuses = None
        self.end = End.DONE
        self.output = b'{"y":7}'
        self.error = None
        self.after_s = None
        self.answers = True
        self.asked = []
        self.jobs = []
        self.gone = []
        self.on_end = []
        self.holds = 0
        self.knocks = Knocks()

    def look(self, asked):
        self.asked.append(asked)
        return self.refuses

    def offer(self, job, on_end):
        self.jobs.append(job)
        self.on_end.append(on_end)
        request = Request(job, len(self.jobs))
        request.started_at = job.created_at
        if self.answers:
            ended = Ended(request, self.end, self.output, self.error, self.after_s, ran=True)
            asyncio.get_running_loop().call_soon(on_end, ended)
        return request

    def withdraw(self, request):
        self.gone.append(request)

    def held(self, task):
        return Held(0, 0, 0, None)

    def held_by(self, tenant):
        return HeldBy(self.holds, 10 * self.holds)


def asked(test, **kwargs):
    """Run `test(caller, basin)` against a door with a basin behind it."""

    async def run(caller):
        caller.front.requests = basin = Basin()
        return await test(caller, basin)

    return call(run, **kwargs)


def test_the_body_is_the_payload_and_the_answer_the_output():
    async def run(caller, basin):
        answer = await caller.post(PATH, json={"x": 3})
        assert (answer.status_code, answer.json()) == (200, {"y": 7})
        (job,) = basin.jobs
        assert job.payload == b'{"x":3}' and job.id == answer.headers["forebay-request-id"]
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["forebay-level"] == "0" and "queue;dur=" in answer.headers["server-timing"]
        assert (await admissions(caller))["accepted", ""] == 1
        assert await caller.depth() == 0, "nothing of it was stored"

    asked(run)


@pytest.mark.parametrize(("told", "seconds"), [("0.2", 0.2), ("250ms", 0.25), ("2", 2.0)])
def test_the_deadline_comes_from_the_header(told, seconds):
    async def run(caller, basin):
        await caller.post(PATH, json=1, headers={"x-request-timeout": told})
        assert basin.asked[0].deadline_at - basin.asked[0].created_at == pytest.approx(seconds)
        assert basin.jobs[0].deadline_at == basin.asked[0].deadline_at

    asked(run)


def test_without_a_header_the_deadline_is_the_tasks_and_else_the_settings():
    tasks = {"echo": TaskSpec(name="echo", deadline_s=0.3), "Clip": TaskSpec(name="Clip")}

    async def run(caller, basin):
        for task, seconds in (("echo", 0.3), ("Clip", 30.0)):
            await caller.post(f"/v1/predict/{task}", json=1)
            assert basin.asked[-1].deadline_at - basin.asked[-1].created_at == pytest.approx(seconds)

    asked(run, tasks=tasks)


@pytest.mark.parametrize("told", ["0", "-1", "soon", str(DEADLINE_MAX_S + 1), "nan", ""])
def test_a_deadline_that_is_none_is_named(told):
    async def run(caller, basin):
        answer = await caller.post(PATH, json=1, headers={"x-request-timeout": told})
        assert answer.status_code == 422 and answer.json()["errors"][0]["path"] == "X-Request-Timeout"
        assert not basin.asked

    asked(run)


def test_the_class_comes_from_the_header():
    async def run(caller, basin):
        for told, priority in (("high", 2), ("9", 9)):
            await caller.post(PATH, json=1, headers={"forebay-priority": told})
            assert basin.jobs[-1].priority == priority
        answer = await caller.post(PATH, json=1, headers={"forebay-priority": "urgent"})
        assert answer.status_code == 422

    asked(run)


@pytest.mark.parametrize("prefer", [{}, {"prefer": "respond-async"}], ids=["request", "job"])
def test_a_class_that_only_looks_like_a_number_is_named(prefer):
    async def run(caller, basin):
        for told in (b"\xb2", b"10", b"-1", b""):  # the first is a superscript two: a digit, and no number
            answer = await caller.post(PATH, json=1, headers={b"forebay-priority": told, **prefer})
            assert answer.status_code == 422 and answer.json()["errors"][0]["path"] == "priority"
        assert not basin.jobs

    asked(run)


def test_requests_count_as_arrivals_refused_or_not():
    clock = StandingClock()

    async def run(caller, basin):
        for _ in range(4):
            await caller.post(PATH, json=1)
        basin.refuses = Rejected(Reason.FULL, 1.0)
        for _ in range(6):
            assert (await caller.post(PATH, json=1)).status_code == 429
        clock.at += 5.0
        assert (await caller.get("/v1/queues/echo")).json()["rates"]["arrivals_max_per_s"] == 10.0

    asked(run, clock=clock)


def test_a_refusal_says_when_to_come_back_and_what_would_do():
    async def run(caller, basin):
        now = caller.front.clock.now()
        offer = Offer(now + 0.3, now + 0.35, deadline_needed_at=now + 0.4)
        basin.refuses = Rejected(Reason.TOO_LATE, 0.25, offer=offer)
        answer = await caller.post(PATH, json=1, headers={"x-request-timeout": "0.2"})
        problem = answer.json()
        assert answer.status_code == 429 and problem["code"] == "cannot_meet_deadline"
        assert problem["retry_after_s"] == 0.25 and 0.3 < problem["deadline_needed_s"] <= 0.41
        assert answer.headers["retry-after"] == "1" and answer.headers["retry-after-ms"] == "250"
        assert not basin.jobs
        assert (await admissions(caller))["refused", "cannot_meet_deadline"] == 1

    asked(run)


def test_the_deadline_that_would_do_is_more_than_the_one_that_does_not():
    async def run(caller, basin):
        now = caller.front.clock.now()
        basin.refuses = Rejected(
            Reason.TOO_LATE, 0.25, offer=Offer(now, now, deadline_needed_at=now + 0.0002)
        )
        problem = (await caller.post(PATH, json=1, headers={"x-request-timeout": "0.001"})).json()
        assert problem["deadline_needed_s"] > 0.001
        assert problem["detail"].endswith(f"{problem['deadline_needed_s']:g} s would do")

    asked(run)


def test_it_is_refused_before_its_body_is_read():
    async def run(caller, basin):
        basin.refuses = Rejected(Reason.FULL, 1.0, 10)
        answer = await caller.post(PATH, content=b"{not json", headers={"content-type": "application/json"})
        assert answer.status_code == 429 and answer.json()["limit"] == 10

    asked(run)


@pytest.mark.parametrize(
    ("reason", "status", "code"),
    [
        (Reason.NO_WORKER, 503, "no_worker"),
        (Reason.UPSTREAM_BUSY, 503, "upstream_busy"),
        (Reason.BYTES_FULL, 429, "queue_full"),
    ],
)
def test_each_reason_has_its_status_and_code(reason, status, code):
    async def run(caller, basin):
        basin.refuses = Rejected(reason, 2.0, 1)
        answer = await caller.post(PATH, json=1)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert answer.headers["retry-after"] == "2"

    asked(run)


@pytest.mark.parametrize(
    ("end", "error", "status", "code"),
    [
        (End.LATE, None, 504, "deadline_passed"),
        (End.SHED, None, 429, "shed"),
        (End.BARRED, None, 503, "breaker_open"),
        (End.BARRED, JobError("upstream_busy", "its gate is closed"), 503, "upstream_busy"),
        (End.LOST, JobError("worker_lost", "it died"), 503, "worker_lost"),
        (End.CLOSED, None, 503, "draining"),
        (End.FAILED, JobError("handler_failed", "boom", "ValueError"), 500, "handler_failed"),
        (End.FAILED, JobError("worker_lost", "killed by signal 11"), 500, "worker_lost"),
        (End.FAILED, JobError("timeout", "ran longer than 1 s"), 504, "timeout"),
        (End.FAILED, JobError("invalid_payload", "does not fit"), 422, "invalid_payload"),
    ],
)
def test_every_other_end_has_its_status_and_code(end, error, status, code):
    async def run(caller, basin):
        basin.end, basin.output, basin.error, basin.after_s = end, None, error, 0.5
        answer = await caller.post(PATH, json=1)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert answer.json()["type"].endswith(code)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["forebay-request-id"] == basin.jobs[0].id
        if error is not None:
            assert error.message in answer.json()["detail"]

    asked(run)


def test_the_payload_is_checked_as_for_jobs():
    async def run(caller, basin):
        answer = await caller.post("/v1/predict/Clip", json={"url": 7})
        assert answer.status_code == 422 and answer.json()["errors"][0]["path"] == "payload.url"
        bad = await caller.post(
            "/v1/predict/Clip", content=b"{", headers={"content-type": "application/json"}
        )
        assert bad.status_code == 400
        assert not basin.jobs

    asked(run, tasks={"Clip": TaskSpec(name="Clip", input_schema=CLIP)})


def test_what_is_no_address_type_or_method_is_said():
    async def run(caller, basin):
        assert (await caller.post("/v1/predict/ecko", json=1)).json()["code"] == "unknown_task"
        assert (await caller.post(PATH, content=b"1")).status_code == 415
        wrong = await caller.get(PATH)
        assert wrong.status_code == 405 and wrong.headers["allow"] == "POST"
        assert (await caller.post(PATH + "?x=1", json=1)).status_code == 422
        assert not basin.asked

    asked(run)


def test_a_body_that_is_too_large_is_refused_by_its_head():
    async def run(caller, basin):
        answer = await caller.post(PATH, json="x" * 2000)
        assert answer.status_code == 413 and answer.json()["limit"] == 1024
        assert not basin.asked

    asked(run, body_bytes_max=1024)


def test_while_the_server_drains_nothing_is_let_in():
    async def run(caller, basin):
        caller.front.lifecycle.begin_drain()
        answer = await caller.post(PATH, json=1)
        assert (answer.status_code, answer.json()["code"]) == (503, "draining")
        assert answer.headers["connection"] == "close" and "retry-after" in answer.headers

    asked(run)


@pytest.mark.parametrize("tap", ["pause", "drain"])
def test_a_queue_that_is_paused_or_drains_takes_no_requests(tap):
    async def run(caller, basin):
        await caller.post(f"/v1/queues/echo/{tap}")
        answer = await caller.post(PATH, json=1)
        assert answer.status_code == 503 and "echo" in answer.json()["detail"]
        await caller.post("/v1/queues/echo/resume")
        assert (await caller.post(PATH, json=1)).status_code == 200

    asked(run)


def test_without_a_worker_in_this_process_a_job_is_named_instead():
    async def run(caller):
        answer = await caller.post(PATH, json=1)
        assert (answer.status_code, answer.json()["code"]) == (503, "no_worker")

    call(run)


def test_respond_async_makes_a_durable_job_of_it():
    async def run(caller, basin):
        basin.refuses = Rejected(Reason.FULL, 1.0, 10)
        answer = await caller.post(PATH, json={"x": 1}, headers={"prefer": "respond-async"})
        assert answer.status_code == 202 and answer.headers["location"] == answer.json()["links"]["self"]
        assert not basin.jobs and await caller.depth() == 1
        job = await caller.front.broker.get(answer.json()["job_id"], now=caller.front.clock.now())
        assert job.job.payload == b'{"x":1}' and job.job.deadline_at is None

    asked(run, tasks={"echo": TaskSpec(name="echo", deadline_s=0.2), "Clip": TaskSpec(name="Clip")})


def test_a_tenant_over_its_rate_is_refused():
    async def run(caller, basin):
        headers = {"authorization": "Bearer key-of-acme-0123456789abcdef"}
        from forebay.core.quota import Quota
        from forebay.core.tenant import Limits

        caller.front.watchman.quotas = {"acme": Quota(Limits(rate_per_s=0.001, burst=1))}
        assert (await caller.post(PATH, json=1, headers=headers)).status_code == 200
        refused = await caller.post(PATH, json=1, headers=headers)
        assert refused.status_code == 429 and refused.json()["code"] == "rate_limited"
        assert basin.jobs[0].tenant == "acme" and len(basin.jobs) == 1

    asked(run, keys="key-of-acme-0123456789abcdef=acme")


STREAM = {"accept": "text/event-stream"}


def events_of(answer):
    """Return (kind, data) of each event of a whole stream."""
    blocks = [
        dict(line.split(": ", 1) for line in block.split("\n"))
        for block in answer.text.split("\n\n")
        if block
    ]
    return [(block["event"], json.loads(block["data"])) for block in blocks]


@pytest.mark.parametrize("end", [End.DONE, End.FAILED])
def test_parts_are_sent_as_they_come_and_then_the_end(end):
    async def run(caller, basin):
        caller.front.hub = hub = Hub(now=caller.front.clock.now)
        basin.answers = False

        async def work():
            while not basin.jobs:
                await asyncio.sleep(0)
            job = basin.jobs[0]
            lease = Lease(job, 0, 1, float("inf"), "", 0.0, request=True)
            hub.parts(lease, 0, [b"1", b"2"])
            hub.parts(lease, 2, [b"3"])
            error = None if end is End.DONE else JobError("handler_failed", "boom")
            basin.on_end[0](Ended(Request(job, 1), end, b"[1,2,3]", error, ran=True))

        working = asyncio.ensure_future(work())
        answer = await caller.post(PATH, json=1, headers=STREAM)
        await working
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        told = events_of(answer)
        parts = [part for kind, data in told if kind == "partial" for part in data["parts"]]
        assert parts == [1, 2, 3]
        if end is End.DONE:
            assert told[-1] == ("done", {"output": [1, 2, 3]})
        else:
            assert told[-1][0] == "error" and told[-1][1]["code"] == "handler_failed"
        assert hub.readers == 0

    asked(run)


def test_a_stream_that_has_nothing_to_say_but_no_has_the_status_of_it():
    async def run(caller, basin):
        caller.front.hub = Hub(now=caller.front.clock.now)
        basin.end, basin.output = End.LATE, None
        answer = await caller.post(PATH, json=1, headers=STREAM)
        assert (answer.status_code, answer.json()["code"]) == (504, "deadline_passed")
        basin.end, basin.output = End.DONE, b"7"
        assert events_of(await caller.post(PATH, json=1, headers=STREAM)) == [("done", {"output": 7})]

    asked(run)


def test_parts_of_a_request_that_nobody_reads_are_not_kept():
    async def run(caller, basin):
        hub = Hub(now=caller.front.clock.now)
        await caller.post(PATH, json=1)
        hub.parts(Lease(basin.jobs[0], 0, 1, float("inf"), "", 0.0, request=True), 0, [b"1"])
        assert not hub.channels

    asked(run)


def test_a_client_that_hangs_up_withdraws_its_request():
    async def run():
        front = a_front()
        front.requests = basin = Basin()
        basin.answers = False
        from forebay.server.asgi import make_app

        door = make_app(front)
        sent = []
        bodies = [{"type": "http.request", "body": b"1"}, {"type": "http.disconnect"}]

        async def receive():
            return bodies.pop(0)

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "query_string": b"",
            "http_version": "1.1",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json"),
                        (b"content-length", b"1")],
        }  # fmt: skip
        async with asyncio.timeout(30):
            await door(scope, receive, send)
        assert len(basin.gone) == 1 and not sent

    asyncio.run(run())


def test_an_input_in_quarantine_is_refused_before_it_meets_a_worker():
    async def run(caller, basin):
        await caller.submit(payload={"page": 1})
        fingerprint = await condemn(caller.front)
        refused = await caller.post(PATH, json={"page": 1})
        assert (refused.status_code, refused.json()["code"]) == (422, "quarantined"), refused.text
        assert refused.json()["fingerprint"] == fingerprint and basin.jobs == []
        assert (await caller.post(PATH, json={"page": 2})).status_code == 200
        assert (await admissions(caller))["refused", "quarantined"] == 1

    asked(run)
