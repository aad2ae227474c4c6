"""The hatch for jobs: plain submissions answered on their connection, exactly as the door answers them."""

import asyncio
import contextlib
import re

import pytest

from forebay.core.job import Job
from forebay.core.quota import Quota
from forebay.core.task import TaskSpec
from forebay.core.tenant import Limits
from forebay.errors import StoreBrokenError, StoreFullError, StoreUnavailableError
from forebay.server import guard, looking
from tests.server.doors import CLIP, a_front, connected, exchange, finish, serving, status_of
from tests.server.hatches import HEALTH, HOST, TYPE, Standing, alike, eventually, read_one, watched

__all__ = ("watched",)
TASKS = {
    "Clip": TaskSpec(name="Clip", kind="class", input_schema=CLIP),
    "echo": TaskSpec(name="echo"),
    "same": TaskSpec(name="same", coalesce=True),
    "timely": TaskSpec(name="timely", deadline_s=5.0),
}
ECHO = b'{"task":"echo","payload":1}'
KEYED = b'{"task":"echo","payload":1,"idempotency_key":"k"}'
KEY = b"Idempotency-Key: k\r\n"


def head(*more, length=27, version=b"1.1", path=b"/v1/jobs"):
    return (
        b"POST " + path + b" HTTP/" + version + b"\r\n" + HOST + TYPE + b"".join(more)
        + b"Content-Length: %d\r\n\r\n" % length
    )  # fmt: skip


def plain(body=ECHO, *more, **told):
    return head(*more, length=len(body), **told) + body


def against(test, clock=None, **kwargs):
    """Run `test(front, port, server)` against a real server that knows its host and its load already."""

    async def run():
        async with asyncio.timeout(60):
            front = a_front(**{"tasks": TASKS, "clock": clock, **kwargs})
            async with serving(front) as (port, server):
                server._door._doorman._known[b"localhost"] = True
                server._door._pressure.live = True
                found = await test(front, port, server)
                if front.blobs is not None:
                    await front.blobs.close()
                with contextlib.suppress(ConnectionError):  # where the test has let it drain
                    assert status_of(await exchange(port, HEALTH)) == 200, "after anything it still answers"
                return found

    return asyncio.run(run())


TAKEN = {
    "plain": [plain()],
    "within the schema": [plain(b'{"task":"Clip","payload":{"url":"a"}}')],
    "against the schema": [plain(b'{"task":"Clip","payload":{"url":7}}')],
    "nothing": [plain(b"")],
    "no JSON": [plain(b"{")],
    "not UTF-8": [plain(b'{"task":"echo","payload":"\xff"}')],
    "too deep": [plain(b'{"task":"echo","payload":' + b"[" * 150 + b"]" * 150 + b"}")],
    "no payload": [plain(b'{"task":"echo"}')],
    "no such task": [plain(b'{"task":"ecko","payload":1}')],
    "a field that is none": [plain(b'{"task":"echo","payload":1,"prio":1}')],
    "a class": [plain(b'{"task":"echo","payload":1,"priority":"high"}')],
    "a class that is none": [plain(b'{"task":"echo","payload":1,"priority":"urgent"}')],
    "every option": [
        plain(
            b'{"task":"echo","payload":1,"ttl":"5m","deadline":"10m","metadata":{"a":1},"attempts_max":2,'
            b'"ordering_key":"o","callback_url":"https://example.com/told"}'
        )
    ],
    "metadata that is none": [plain(b'{"task":"echo","payload":1,"metadata":{"":1}}')],
    "a callback into the house": [plain(b'{"task":"echo","payload":1,"callback_url":"http://127.0.0.1/"}')],
    "later": [plain(b'{"task":"echo","payload":1,"run_at":"2028-01-01T00:00:00Z"}')],
    "a deadline behind": [plain(b'{"task":"echo","payload":1,"deadline":"2020-01-01T00:00:00Z"}')],
    "a task with a deadline": [plain(b'{"task":"timely","payload":1}')],
    "one after another": [plain(), plain(), plain()],
    "one key twice": [plain(KEYED), plain(KEYED)],
    "one key twice, in the head": [plain(ECHO, KEY), plain(ECHO, KEY)],
    "one key with two bodies": [plain(KEYED), plain(b'{"task":"echo","payload":2}', KEY)],
    "two keys": [plain(KEYED, b"Idempotency-Key: other\r\n")],
    "a key that is none": [plain(ECHO, b"Idempotency-Key: a b\r\n")],
    "one that joins another": [plain(b'{"task":"same","payload":1}')] * 2,
    "a stranger's header": [plain(ECHO, b"Traceparent: 00-ab-cd-01\r\n", b"X-A: b\r\n")],
    "an offer to upgrade": [plain(ECHO, b"Upgrade: h2c\r\n")],
    "a tenant": [plain(ECHO, b"Forebay-Tenant: acme\r\n")],
    "a key that nobody asks for": [plain(ECHO, b"Authorization: Bearer x\r\n")],
    "a sign of a blob where there are none": [plain(b'{"task":"echo","payload":{"$blob":"x"}}')],
}  # fmt: skip
NOT_PLAIN = {
    "a query": plain(path=b"/v1/jobs?x=1"),
    "a slash behind": plain(path=b"/v1/jobs/"),
    "an escape": plain(path=b"/v1/job%73"),
    "another method": plain().replace(b"POST", b"PUT"),
    "another type": plain().replace(b"application/json", b"text/plain"),
    "many jobs": plain().replace(b"application/json", b"application/x-ndjson"),
    "no type": plain().replace(TYPE, b""),
    "an encoding": plain(ECHO, b"Content-Encoding: gzip\r\n"),
    "another origin": plain(ECHO, b"Origin: http://evil.example\r\n"),
    "a page of another site": plain(ECHO, b"Sec-Fetch-Site: cross-site\r\n"),
    "another host": plain().replace(b"localhost", b"evil.example"),
    "two hosts": plain(ECHO, HOST),
    "a header twice": plain(ECHO, b"X-A: 1\r\n", b"X-A: 2\r\n"),
    "a key twice": plain(ECHO, KEY, KEY),
    "no tenant's name": plain(ECHO, b"Forebay-Tenant: a b\r\n"),
    "a budget": plain(ECHO, b"Forebay-Budget: ci;rate=5\r\n"),
    "a wait": plain(ECHO, b"Prefer: wait=0\r\n"),
    "a preference": plain(ECHO, b"Prefer: respond-async\r\n"),
    "events": plain(ECHO, b"Accept: text/event-stream\r\n"),
    "an expectation": plain(ECHO, b"Expect: 100-continue\r\n"),
    "an odd expectation": plain(ECHO, b"Expect: x\r\n"),
    "the last of its connection": plain(ECHO, b"Connection: close\r\n"),
    "HTTP/1.0": plain(version=b"1.0"),
    "in chunks": head(b"Transfer-Encoding: chunked\r\n").replace(b"Content-Length: 27\r\n", b"")
    + b"1b\r\n" + ECHO + b"\r\n0\r\n\r\n",
    "both lengths": head(b"Transfer-Encoding: chunked\r\n") + b"1b\r\n" + ECHO + b"\r\n0\r\n\r\n",
    "no length": head().replace(b"Content-Length: 27\r\n", b""),
    "large": plain(b'{"task":"echo","payload":"' + b"x" * 70_000 + b'"}'),
    "longer than a body may be": plain(b'{"task":"echo","payload":"' + b"x" * 200_000 + b'"}'),
}  # fmt: skip


async def left_behind(front):
    """Return what is stored, what was counted, and what was logged."""
    jobs = []
    for task in TASKS:
        leases = await front.broker.lease(task, limit=100, lease_s=30, worker="w", now=front.clock.now())
        jobs += [(lease.job._replace(id=""), lease.attempt) for lease in leases]
    text = front.meters.render("")[0].decode()
    counts = [line for line in text.splitlines() if re.match(r"inference_(admission|store|jobs)", line)]
    return jobs, counts, front.log.lines


def answers_to(sent, begin=None, **kwargs):
    """Return the answers to requests on one connection, and everything that is left behind by them."""

    async def run(front, port, server):
        if begin is not None:
            await begin(front, port)
        reader, writer = await connected(port)
        told = []
        for request in sent:
            writer.write(request)
            told.append(alike(await read_one(reader)))
        writer.close()
        return told, await left_behind(front)

    return against(run, Standing(), body_bytes_max=100_000, **kwargs)


def both(watched, ask):
    """Return (what the hatch says, what the door says, how many the hatch took)."""
    short = ask()
    taken = watched.taken
    watched.closed = True
    return short, ask(), taken


@pytest.mark.parametrize("sent", TAKEN.values(), ids=TAKEN)
def test_submissions_are_answered_alike_to_the_last_byte(sent, watched):
    hatch_says, door_says, taken = both(watched, lambda: answers_to(sent))
    assert hatch_says == door_says and taken == len(sent)


@pytest.mark.parametrize("sent", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_what_is_not_plain_goes_the_long_way(sent, watched):
    async def run(front, port, _):
        return alike(await exchange(port, sent + HEALTH)), await left_behind(front)

    hatch_says, door_says, taken = both(watched, lambda: against(run, Standing(), body_bytes_max=100_000))
    assert hatch_says == door_says and taken == 0


async def _filled(front, port):
    """A queue that is full of a job with a key."""
    assert status_of(await exchange(port, plain(KEYED, b"Connection: close\r\n"))) == 202


async def _done(front, port):
    """A job with a key that has ended."""
    await _filled(front, port)
    await finish(front)


async def _paused(front, port):
    await front.broker.pause("echo", paused=True, now=front.clock.now())


async def _draining(front, port):
    await front.broker.drain("echo", draining=True, now=front.clock.now())


@pytest.mark.parametrize(
    ("begin", "sent", "statuses"),
    [
        (_filled, [plain(), plain(KEYED), plain(ECHO, KEY), plain(ECHO, b"Idempotency-Key: new\r\n")],
         [429, 202, 202, 429]),
        (_done, [plain(), plain(KEYED), plain(b'{"task":"echo","payload":3}', KEY)], [202, 200, 422]),
        (_paused, [plain()], [202]),
        (_draining, [plain(), plain(KEYED)], [503, 503]),
    ],
)  # fmt: skip
def test_a_queue_says_the_same_either_way(begin, sent, statuses, watched):
    hatch_says, door_says, taken = both(watched, lambda: answers_to(sent, begin, jobs_max=1))
    assert hatch_says == door_says and taken == len(sent)
    assert [status_of(one) for one in hatch_says[0]] == statuses


def test_where_the_only_queue_is_full_the_door_says_so(watched):
    only = {"echo": TASKS["echo"]}

    async def run(front, port, _):
        return alike(await exchange(port, plain() * 3 + HEALTH))

    told, again, taken = both(watched, lambda: against(run, Standing(), jobs_max=1, tasks=only))
    assert told == again and taken < 3, "once it is known to be full"
    assert re.findall(rb"HTTP/1\.1 (\d+)", told) == [b"202", b"429", b"429", b"200"]


FAILURES = {
    "full disk": StoreFullError("the disk is full", retry_after_s=0.5),
    "too much waits": StoreUnavailableError("much waits"),
    "broken": StoreBrokenError("it broke"),
    "something else": RuntimeError("what"),
}


@pytest.mark.parametrize("at_once", [False, True], ids=["later", "at once"])
@pytest.mark.parametrize("error", FAILURES.values(), ids=FAILURES)
def test_a_store_that_fails_is_told_alike(error, at_once, watched):
    async def begin(front, port):
        def refuse(jobs, *, now):
            if at_once:
                raise error
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)
            return future

        front.broker.enqueue = refuse

    hatch_says, door_says, taken = both(watched, lambda: answers_to([plain()], begin))
    assert hatch_says == door_says and taken == 1
    assert status_of(hatch_says[0][0]) in (503, 507)


def test_what_breaks_on_the_way_is_an_internal_error_either_way(watched):
    async def begin(front, port):
        front.broker.new_id = None  # called, and no function

    hatch_says, door_says, taken = both(watched, lambda: answers_to([plain()], begin))
    assert hatch_says == door_says and taken == 1
    assert status_of(hatch_says[0][0]) == 500 and hatch_says[1][2][0][1]["route"] == "/v1/jobs"


def test_what_breaks_after_it_was_stored_is_an_internal_error_either_way(watched):
    async def begin(front, port):
        front.broker.place_now = None

    hatch_says, door_says, taken = both(watched, lambda: answers_to([plain()], begin))
    assert hatch_says == door_says and taken == 1
    assert status_of(hatch_says[0][0]) == 500 and len(hatch_says[1][0]) == 1


def test_a_payload_that_names_a_blob_goes_the_long_way_uncounted(watched, tmp_path):
    async def run(front, port, _):
        put = await exchange(
            port, b"PUT /v1/blobs HTTP/1.1\r\n" + HOST + b"Content-Type: audio/wav\r\n"
            b"Connection: close\r\nContent-Length: 11\r\n\r\nhello world",
        )  # fmt: skip
        blob_id = re.search(rb'"id":"([^"]+)"', put)[1]
        for named, status in ((blob_id, 202), (b"nothing", 422)):
            body = b'{"task":"echo","payload":{"$blob":"' + named + b'"}}'
            assert status_of(await exchange(port, plain(body) + HEALTH)) == status
        assert front.meters.for_task("echo").arrivals == 1 and watched.taken == 2

    against(run, blobs=tmp_path)


KEYS = "key-of-acme-0123456789abcdef=acme,key-of-root-0123456789abcdef=root:admin,key-of-read-0123456789abcdef=acme:read"
ACME, ROOT, READ = (
    b"Authorization: Bearer key-of-%b-0123456789abcdef\r\n" % name for name in (b"acme", b"root", b"read")
)


@pytest.mark.parametrize(
    ("heads", "taken", "tenants"),
    [
        ((), 0, []),
        ((b"Authorization: Bearer nobody\r\n",), 0, []),
        ((ACME, ACME), 0, []),
        ((READ,), 0, []),
        ((ACME,), 1, ["acme"]),
        ((ACME, b"Forebay-Tenant: other\r\n"), 1, ["acme"]),
        ((ROOT, b"Forebay-Tenant: other\r\n"), 1, ["other"]),
    ],
)
def test_with_keys_the_same_callers_submit_as_the_same_tenants(heads, taken, tenants, watched):
    async def run(front, port, _):
        answer = await exchange(port, plain(ECHO, *heads) + HEALTH)
        return alike(answer), await left_behind(front)

    hatch_says, door_says, took = both(watched, lambda: against(run, Standing(), keys=KEYS))
    assert hatch_says == door_says and took == taken
    assert [job.tenant for job, _ in hatch_says[1][0]] == tenants


def test_a_tenant_with_limits_goes_through_the_door(watched):
    async def run(front, port, _):
        front.watchman.quotas = {"acme": Quota(Limits(rate_per_s=0.001, burst=1))}
        answer = await exchange(port, plain(ECHO, ACME) * 2 + HEALTH)
        assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"202", b"429", b"200"]
        assert b"ratelimit: " in answer and watched.taken == 0

    against(run, keys=KEYS)


def test_a_repeat_is_known_by_its_own_tenant_alone(watched):
    async def run(front, port, _):
        tenant = (b"Forebay-Tenant: one\r\n", b"Forebay-Tenant: other\r\n")
        answers = [await exchange(port, plain(KEYED, who) + HEALTH) for who in (*tenant, *tenant)]
        ids = [re.search(rb'"job_id":"([^"]+)"', answer)[1] for answer in answers]
        assert ids[:2] == ids[2:] and ids[0] != ids[1] and watched.taken == 4
        assert [b"idempotency-replayed: true" in answer for answer in answers] == [False] * 2 + [True] * 2

    against(run)


class Held:
    """An engine that stores when it is told to."""

    def __init__(self, front):
        self.waiting = []
        self._enqueue = front.broker.enqueue
        front.broker.enqueue = self.enqueue

    def enqueue(self, jobs, *, now):
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((future, jobs, now))
        return future

    async def store(self):
        future, jobs, now = self.waiting.pop(0)
        future.set_result(await self._enqueue(jobs, now=now))


def test_nothing_is_answered_before_it_is_stored(watched):
    async def run(front, port, _):
        held = Held(front)
        reader, writer = await connected(port)
        writer.write(plain())
        await eventually(lambda: held.waiting)
        assert status_of(await exchange(port, HEALTH)) == 200
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
        await held.store()
        assert status_of(await read_one(reader)) == 202 and watched.taken == 1
        writer.close()

    against(run)


@pytest.mark.parametrize("how", ["close", "abort"])
def test_what_a_client_submitted_stays_when_it_hangs_up(how, watched):
    async def run(front, port, _):
        held = Held(front)
        _, writer = await connected(port)
        writer.write(plain())
        await eventually(lambda: held.waiting)
        getattr(writer.transport, how)()
        await writer.wait_closed()
        assert status_of(await exchange(port, HEALTH)) == 200
        await held.store()
        assert status_of(await exchange(port, HEALTH)) == 200
        jobs, _, lines = await left_behind(front)
        assert len(jobs) == 1 and not lines and watched.taken == 1

    against(run)


@pytest.mark.parametrize("sent", [head(length=9), head(length=9) + b'{"task":'], ids=["head", "half a body"])
def test_a_client_that_hangs_up_within_the_body_submits_nothing(sent, watched):
    async def run(front, port, _):
        _, writer = await connected(port)
        writer.write(sent)
        await eventually(lambda: watched.taken == 1)
        writer.close()
        await writer.wait_closed()
        assert status_of(await exchange(port, HEALTH)) == 200
        jobs, _, lines = await left_behind(front)
        assert not jobs and not lines

    against(run)


def test_pipelined_submissions_are_answered_in_order_on_one_connection(watched):
    async def run(front, port, _):
        bodies = [b'{"task":"echo","payload":%d}' % number for number in range(50)]
        answer = await exchange(port, b"".join(plain(body) for body in bodies) + HEALTH)
        assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"202"] * 50 + [b"200"]
        ids = re.findall(rb'"job_id":"([^"]+)"', answer)
        assert ids == sorted(ids) and watched.taken >= 1
        jobs, _, _ = await left_behind(front)
        assert [job.payload for job, _ in jobs] == [b"%d" % number for number in range(50)]

    against(run)


def test_a_body_may_come_in_pieces(watched):
    async def run(front, port, _):
        reader, writer = await connected(port)
        sent = plain()
        for at in range(0, len(sent), 7):
            writer.write(sent[at : at + 7])
            await writer.drain()
            await asyncio.sleep(0)
        assert status_of(await read_one(reader)) == 202 and watched.taken == 1
        writer.close()

    against(run)


def test_a_client_that_has_ended_its_side_is_answered(watched, monkeypatch):
    monkeypatch.setattr(guard, "_HALF_CLOSED_S", 30.0)  # the answer ends the connection, not the time

    async def run(front, port, _):
        held = Held(front)
        reader, writer = await connected(port)
        writer.write(plain())
        writer.write_eof()
        await eventually(lambda: held.waiting)
        await held.store()
        answer = await asyncio.wait_for(reader.read(), 20)
        assert status_of(answer) == 202 and b'"job_id"' in answer and watched.taken == 1
        writer.close()

    against(run)


def test_while_it_drains_the_answer_ends_its_connection_and_nothing_new_comes_in(watched):
    async def run(front, port, server):
        held = Held(front)
        reader, writer = await connected(port)
        writer.write(plain())
        await eventually(lambda: held.waiting)
        server.begin_drain()
        await held.store()
        answer = await asyncio.wait_for(reader.read(), 30)
        assert status_of(answer) == 202 and b"\r\nconnection: close\r\n" in answer and watched.taken == 1
        refused = await exchange(port, plain())
        assert status_of(refused) == 503 and b"connection: close" in refused and watched.taken == 1
        writer.close()

    against(run)


def test_a_slow_body_is_let_go_and_submits_nothing(watched, monkeypatch):
    monkeypatch.setattr("forebay.server.limits.BODY_TIMEOUT_S", 0.3)
    monkeypatch.setattr(looking, "LOOK_S", 0.05)

    async def run(front, port, _):
        answer = await exchange(port, head() + b'{"task"')
        assert status_of(answer) == 408 and b"connection: close" in answer and b"body_timeout" in answer
        jobs, _, _ = await left_behind(front)
        assert not jobs and watched.taken == 1

    against(run)


def test_an_idle_connection_keeps_no_payload(watched):
    """There may be thousands, and each would keep its last one."""

    async def run(_, port, server):
        reader, writer = await connected(port)
        writer.write(plain())
        assert status_of(await read_one(reader)) == 202 and watched.taken == 1
        (connection,) = server._uvicorn.server_state.connections
        kept = connection.cycle
        names = [name for kind in type(kept).__mro__ for name in getattr(kind, "__slots__", ())]
        assert "_parts" in names and not kept._parts
        assert not [name for name in names if isinstance(getattr(kept, name, None), Job)]
        writer.close()

    against(run)
