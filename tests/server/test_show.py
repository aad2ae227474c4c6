"""One job: read, wait, result, cancel."""

import asyncio

import pytest

from forebay.core import settle
from forebay.server.limits import WAITERS_MAX
from tests.server.doors import WAIT_MAX_S, a_front, call, connected, exchange, finish, kill, lease, serving

UNKNOWN = "01900000-0000-7000-8000-000000000000"
ODD_IDS = [UNKNOWN, "x", "..", "%2e%2e", "a%2fresult", "%00", "%ff", "%zz", "a;x=1", "😀", "1" * 300, UNKNOWN.upper(),
           "a:b", "a b", "a%3Fb", "#", "*"]  # fmt: skip


@pytest.mark.parametrize("job_id", ODD_IDS)
@pytest.mark.parametrize(("method", "below"), [("GET", ""), ("GET", "/result"), ("DELETE", "")])
def test_an_unknown_id_is_404_at_once_however_it_is_written(job_id, method, below):
    async def run(caller):
        answer = await caller.request(method, f"/v1/jobs/{job_id}{below}")
        assert answer.status_code == 404 and answer.json()["code"] == "not_found"
        answer = await caller.get(f"/v1/jobs/{UNKNOWN}?wait=30")
        assert answer.status_code == 404

    call(run)


@pytest.mark.parametrize(
    ("query", "status"),
    [("wait=-1", 200), ("wait=0", 200), ("wait=abc", 422), ("wait=NaN", 422), ("wait=1&wait=2", 422),
     ("wiat=1", 422), ("wait=%zz", 422), ("wait=%ff", 422), ("wait=0ms", 200), ("&", 422), ("wait=", 422),
     ("&".join(f"a{i}=1" for i in range(1000)), 422), ("wait=5+parsecs", 422), ("wait=inf", 422),
     ("wait=-inf", 422), ("wait=1_0", 422), ("wait=%D9%A3", 422), ("wait=1e400", 422), ("wait=0e1", 200)],
)  # fmt: skip
def test_a_query_is_understood_or_refused_by_name(query, status):
    async def run(caller):
        job = await caller.one()
        answer = await caller.get(f"{job['links']['self']}?{query}")
        assert answer.status_code == status, answer.text

    call(run)


def test_an_immense_wait_is_clamped_to_the_bound(monkeypatch):
    monkeypatch.setattr("forebay.server.asking.WAIT_MAX_S", 0.05)

    async def run(caller):
        job = await caller.one()
        answer = await caller.get(f"{job['links']['self']}?wait=1e9")
        assert answer.status_code == 200 and answer.json()["state"] == "queued"

    call(run)


async def waits(caller, count=1):
    async with asyncio.timeout(WAIT_MAX_S):
        while caller.door.waiters.held < count:
            await asyncio.sleep(0.001)


def test_a_wait_ends_at_the_first_change_since_arrival():
    async def run(caller):
        job = await caller.one()
        waiting = asyncio.ensure_future(caller.get(f"{job['links']['self']}?wait=30"))
        await waits(caller)
        (held,) = await lease(caller.front)
        assert (await waiting).json()["status"] == "PROCESSING"
        waiting = asyncio.ensure_future(caller.get(f"{job['links']['self']}?wait=30"))
        await waits(caller)
        now = caller.front.clock.now()
        await caller.front.broker.commit([settle.complete(held, output=b"7", now=now)], now=now)
        assert (await waiting).json()["result"] == 7
        assert (await caller.get(f"{job['links']['self']}?wait=30")).json()["status"] == "COMPLETED"
        assert caller.door.waiters.held == 0

    call(run)


def test_a_change_between_the_look_and_the_wait_is_not_missed():
    async def run(caller):
        job = await caller.one()
        broker = caller.front.broker
        looks = 0

        class Racing:
            def __getattr__(self, name):
                return getattr(broker, name)

            async def get(self, job_id, *, now):
                nonlocal looks
                looks += 1
                record = await broker.get(job_id, now=now)
                if looks == 2:  # the waiter has subscribed and looks: the job ends right after
                    await finish(caller.front)
                return record

        caller.front.broker = Racing()
        async with asyncio.timeout(WAIT_MAX_S):
            answer = await caller.get(f"{job['links']['self']}?wait=30")
        assert answer.json()["status"] == "COMPLETED"

    call(run)


def test_a_waiter_finds_a_change_that_nobody_announced(monkeypatch):
    monkeypatch.setattr("forebay.server.waiters.RELOOK_S", 0.01)

    async def run(caller):
        caller.front.broker.on_change = lambda listener: lambda: None  # a dead bell
        job = await caller.one()
        waiting = asyncio.ensure_future(caller.get(f"{job['links']['self']}?wait=30"))
        await waits(caller)
        await finish(caller.front)
        async with asyncio.timeout(WAIT_MAX_S):
            assert (await waiting).json()["status"] == "COMPLETED"

    call(run)


def test_many_waiters_on_one_job_are_all_answered():
    async def run(caller):
        job = await caller.one()
        waiting = [asyncio.ensure_future(caller.get(f"{job['links']['self']}?wait=50")) for _ in range(500)]
        await waits(caller, 500)
        await finish(caller.front)
        assert {answer.json()["status"] for answer in await asyncio.gather(*waiting)} == {"COMPLETED"}
        assert caller.door.waiters.held == 0 and not caller.door.waiters._by_job
        assert WAITERS_MAX >= 5000

    call(run)


def test_past_the_bound_of_waiters_a_wait_answers_at_once(monkeypatch):
    monkeypatch.setattr("forebay.server.waiters.WAITERS_MAX", 0)

    async def run(caller):
        job = await caller.one()
        assert (await caller.get(f"{job['links']['self']}?wait=30")).json()["state"] == "queued"
        assert (await caller.submit(headers={"prefer": "wait=30"})).status_code == 202

    call(run)


@pytest.mark.parametrize("way", ["?wait", "Prefer: wait"])
def test_a_waiter_that_hangs_up_is_forgotten(way):
    async def run():
        front = a_front()
        async with serving(front) as (port, server):
            receipts = await front.broker.enqueue([], now=front.clock.now())
            assert receipts == []
            good = b'{"task":"echo","payload":1}'
            answer = await exchange(
                port,
                b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(good), good),
            )
            job_id = answer.split(b'"job_id":"')[1][:36]
            _, writer = await connected(port)
            if way == "?wait":
                writer.write(b"GET /v1/jobs/%s?wait=50 HTTP/1.1\r\nHost: localhost\r\n\r\n" % job_id)
            else:
                writer.write(
                    b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    b"Prefer: wait=50\r\nContent-Length: %d\r\n\r\n%s" % (len(good), good)
                )
            waiters = server._door.waiters
            async with asyncio.timeout(WAIT_MAX_S):
                while not waiters.held:
                    await asyncio.sleep(0.005)
                writer.close()
                while waiters.held:
                    await asyncio.sleep(0.005)

    asyncio.run(run())


def test_an_etag_saves_the_body_until_something_durable_changes():
    async def run(caller):
        job = await caller.one()
        path = job["links"]["self"]
        tag = (await caller.get(path)).headers["etag"]
        same = await caller.get(path, headers={"if-none-match": tag})
        assert same.status_code == 304 and same.content == b"" and same.headers["etag"] == tag
        assert (await caller.get(path, headers={"if-none-match": f'"x", {tag}'})).status_code == 304
        await lease(caller.front)
        changed = await caller.get(path + "?wait=30", headers={"if-none-match": tag})
        assert changed.status_code == 200 and changed.headers["etag"] != tag

    call(run)


def test_head_is_get_without_a_body():
    async def run(caller):
        job = await caller.one()
        for path in (job["links"]["self"], "/healthz", "/v1/queues", "/v1/jobs"):
            answer = await caller.head(path)
            assert answer.status_code == 200 and answer.content == b""
            assert int(answer.headers["content-length"]) > 0

    call(run)


@pytest.mark.parametrize(
    "output", [b'{"x":1}', b"null", b'"text"', b"1E-400", b"18446744073709551616", b'"a\\u0000"']
)
def test_a_result_comes_back_to_the_byte(output):
    async def run(caller):
        job = await caller.one()
        early = await caller.get(job["links"]["result"])
        assert (early.status_code, early.json()["code"]) == (409, "not_finished")
        await finish(caller.front, output=output)
        for _ in range(2):
            answer = await caller.get(job["links"]["result"])
            assert (answer.status_code, answer.content) == (200, output)
        shown = await caller.get(job["links"]["self"])
        assert b'"result":' + output + b"," in shown.content

    call(run)


def test_a_job_that_failed_has_no_result_and_says_why():
    async def run(caller):
        job = await caller.one()
        await kill(caller.front, code="404")
        answer = await caller.get(job["links"]["result"])
        assert (answer.status_code, answer.json()["code"]) == (409, "no_result")
        shown = await caller.get(job["links"]["self"])
        assert shown.status_code == 200
        assert (shown.json()["status"], shown.json()["error"]["code"]) == ("FAILED", "404")
        assert shown.json()["error"]["message"] == "it <b>broke</b>\r\nbadly"
        events = [entry["event"] for entry in shown.json()["timeline"]]
        assert events == ["accepted", "queued", "started", "exhausted", "dead"]

    call(run)


def test_a_job_past_its_retention_is_gone_at_once():
    from forebay.brokers.memory import MemoryBroker

    async def run(caller):
        job = await caller.one()
        await finish(caller.front)
        async with asyncio.timeout(WAIT_MAX_S):
            while (answer := await caller.get(job["links"]["self"])).status_code == 200:
                await asyncio.sleep(0.01)
        for path in (job["links"]["self"], job["links"]["result"], job["links"]["self"] + "?wait=30"):
            answer = await caller.get(path)
            assert (answer.status_code, answer.json()["code"]) == (410, "gone")
        assert (await caller.delete(job["links"]["self"])).status_code == 410

    call(run, broker=MemoryBroker(retention_s=0.05))


def test_cancel_follows_the_state_and_answers_the_same_twice():
    async def run(caller):
        waiting, running = await caller.one(), None
        for _ in range(2):
            answer = await caller.delete(waiting["links"]["self"])
            assert (answer.status_code, answer.json()["status"]) == (200, "CANCELLED")
        running = await caller.one()
        (held,) = await lease(caller.front)
        for _ in range(2):
            answer = await caller.delete(running["links"]["self"])
            assert (answer.status_code, answer.json()["status"]) == (202, "PROCESSING")
            assert answer.json()["cancel_requested"] is True
        now = caller.front.clock.now()
        await caller.front.broker.commit([settle.cancel(held, now=now)], now=now)
        assert (await caller.delete(running["links"]["self"])).status_code == 200
        done = await caller.one()
        await finish(caller.front)
        answer = await caller.delete(done["links"]["self"])
        assert (answer.status_code, answer.json()["code"]) == (409, "state_conflict")
        assert answer.headers["x-should-retry"] == "false"

    call(run)


def test_many_cancels_at_once_leave_nothing_to_run():
    async def run(caller):
        jobs = [await caller.one() for _ in range(200)]
        answers = await asyncio.gather(*(caller.delete(job["links"]["self"]) for job in jobs))
        assert {answer.status_code for answer in answers} == {200}
        assert await lease(caller.front, limit=10) == []

    call(run)


def test_a_running_job_has_no_place_and_the_rest_of_its_time():
    async def run(caller):
        caller.front.estimators["echo"].ran(items=1, took_s=100.0)
        job = await caller.one()
        await lease(caller.front)
        shown = (await caller.get(job["links"]["self"])).json()
        assert shown["position"] is None and 90 < shown["eta"]["p50_s"] <= 100 and shown["started_at"]
        later = await caller.one(run_at="2001-01-01T00:00:00Z")
        assert later["state"] == "queued"

    call(run)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [("PUT", "/v1/jobs/x", "DELETE"), ("POST", "/v1/jobs/x", "DELETE"), ("DELETE", "/v1/jobs/x/result", "GET"),
     ("PUT", "/v1/jobs", "GET"), ("POST", "/healthz", "GET"), ("POST", "/metrics", "GET"), ("GET", "/v1/queues/echo/pause", "POST")],
)  # fmt: skip
def test_another_method_is_405_and_says_which_there_are(method, path, allow):
    async def run(caller):
        answer = await caller.request(method, path)
        assert answer.status_code == 405 and allow in answer.headers["allow"]
        assert answer.json()["code"] == "method_not_allowed"

    call(run)


@pytest.mark.parametrize(
    "path",
    ["//v1/jobs", "/v1/jobs/", "/v1//jobs", "/jobs/%2e%2e/admin", "/v1%2fjobs", "/v1/jobs%00", "/%ff", "/v1/jobs;x=1",
     "/😀", "/%2e%2e/%2e%2e/etc/passwd", "/v1/queues/", "/v1/queues/echo/", "/v1/queues/ec%2fho", "/docs/", "/v1"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_odd_address_is_no_other_route_and_no_redirect(path, method):
    async def run(caller):
        answer = await caller.request(method, path)
        assert answer.status_code == 404 and "location" not in answer.headers

    call(run)


def test_a_long_address_is_414():
    async def run(caller):
        assert (await caller.get("/" + "a" * 10_000)).status_code == 414
        assert (await caller.get("/v1/jobs?cursor=" + "a" * 10_000)).status_code == 414

    call(run)
