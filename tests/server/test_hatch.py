"""The hatch: plain requests answered on their connection, exactly as the door answers them."""

import asyncio
import contextlib
import re
import socket
import sys
from dataclasses import dataclass, field

import pytest

from forebay.clock import SystemClock
from forebay.core.admission import Offer, Reason, Rejected
from forebay.core.degraded import FALLBACK
from forebay.core.job import JobError
from forebay.core.knocks import Knocks
from forebay.core.quota import Quota
from forebay.core.requests import End, Ended, Request
from forebay.core.task import TaskSpec
from forebay.core.tenant import Held as Tenancy
from forebay.core.tenant import Limits
from forebay.ports.requests import Held
from forebay.server import guard, hatch, looking, waits
from tests.server.doors import CLIP, a_front, connected, exchange, serving, status_of
from tests.server.hatches import HEALTH, HOST, NOW, TYPE, Standing, alike, eventually, read_one, watched

__all__ = ("watched",)

TASKS = {
    "Clip": TaskSpec(name="Clip", kind="class", input_schema=CLIP),
    "echo": TaskSpec(name="echo", deadline_s=0.2),
}
TOO_LATE = Rejected(Reason.TOO_LATE, 0.25, offer=Offer(NOW + 0.3, NOW + 0.35, deadline_needed_at=NOW + 0.4))


@pytest.fixture(autouse=True)
def nothing_lies_in_its_socket(monkeypatch):
    """Answers are compared byte by byte on a clock that stands: the kernel's goes on while the machine stalls."""
    monkeypatch.setattr(hatch, "lain_s", lambda _transport: 0.0)


def head(*more, task=b"echo", length=1, version=b"1.1"):
    return (
        b"POST /v1/predict/" + task + b" HTTP/" + version + b"\r\n" + HOST + TYPE + b"".join(more)
        + b"Content-Length: %d\r\n\r\n" % length
    )  # fmt: skip


def plain(body=b"1", *more, **told):
    return head(*more, length=len(body), **told) + body


@dataclass
class Basin:
    """Lets in or refuses as told; answers with `end`, or when it is asked to."""

    refuses: object = None
    refuses_offers: object = None
    end: object = End.DONE
    output: bytes | None = b'{"y":7}'
    error: object = None
    after_s: object = None
    level: int = 0
    answers: bool = True
    asked: list = field(default_factory=list)
    jobs: list = field(default_factory=list)
    gone: list = field(default_factory=list)
    waiting: list = field(default_factory=list)
    knocks: Knocks = field(default_factory=Knocks)

    def look(self, asked):
        self.asked.append(asked)
        return self.refuses

    def offer(self, job, on_end):
        if self.refuses_offers:
            return self.refuses_offers
        self.jobs.append(job)
        request = Request(job, len(self.jobs))
        request.started_at, request.level = job.created_at, self.level
        ended = Ended(request, self.end, self.output, self.error, self.after_s, ran=True)
        self.waiting.append((on_end, ended))
        if self.answers:
            asyncio.get_running_loop().call_soon(on_end, ended)
        return request

    def answer(self, number):
        on_end, ended = self.waiting[number]
        on_end(ended)

    def withdraw(self, request):
        self.gone.append(request)

    def held(self, task):
        return Held(0, 0, 0, None)

    def held_by(self, tenant):
        return Tenancy()


def against(test, basin=None, clock=None, **kwargs):
    """Run `test(front, basin, port, server)` against a real server that knows its host already."""

    async def run():
        async with asyncio.timeout(60):
            front = a_front(**{"tasks": TASKS, "clock": clock, **kwargs})
            front.requests = basin if basin is not None else Basin()
            async with serving(front) as (port, server):
                server._door._doorman._known[b"localhost"] = True
                found = await test(front, front.requests, port, server)
                if front.blobs is not None:
                    await front.blobs.close()
                with contextlib.suppress(ConnectionError):  # where the test has let it drain
                    assert status_of(await exchange(port, HEALTH)) == 200, "after anything it still answers"
                return found

    return asyncio.run(run())


REFUSALS = {
    "deadline": {"refuses": TOO_LATE},
    "full": {"refuses": Rejected(Reason.FULL, 1.0, 10)},
    "bytes": {"refuses": Rejected(Reason.BYTES_FULL, 2.5, 1000)},
    "no worker": {"refuses": Rejected(Reason.NO_WORKER, 2.0)},
    "breaker": {"refuses": Rejected(Reason.BREAKER_OPEN, 12.0)},
    "upstream shut": {"refuses": Rejected(Reason.UPSTREAM_BUSY, 1.5, told="its gate is closed: 12")},
    "draining lane": {"refuses": Rejected(Reason.DRAINING, 1.5)},
    "at the second look": {"refuses_offers": TOO_LATE},
}
ENDS = {
    "done": {},
    "null": {"output": None},
    "degraded": {"level": 1},
    "fallback": {"level": FALLBACK},
    "late": {"end": End.LATE},
    "shed": {"end": End.SHED, "after_s": 0.5},
    "barred": {"end": End.BARRED, "after_s": 3.0},
    "shut out": {"end": End.BARRED, "error": JobError("upstream_busy", "its gate is closed"), "after_s": 2.0},
    "lost": {"end": End.LOST, "error": JobError("worker_lost", "it died")},
    "closed": {"end": End.CLOSED},
    "failed": {"end": End.FAILED, "error": JobError("handler_failed", "boom", "ValueError")},
    "timeout": {"end": End.FAILED, "error": JobError("timeout", "ran longer than 1 s")},
    "busy": {"end": End.FAILED, "error": JobError("upstream_busy", "busy"), "after_s": 1.0},
    "invalid": {"end": End.FAILED, "error": JobError("invalid_payload", "does not fit")},
    "not an output by reference": {"output": b'{"$blob": 7}'},
}
BODIES = {
    "none": plain(b""),
    "no JSON": plain(b"{"),
    "not UTF-8": plain(b'"\xff"'),
    "too deep": plain(b"[" * 150 + b"]" * 150),
    "against the schema": plain(b'{"url":7}', task=b"Clip"),
    "within the schema": plain(b'{"url":"a"}', task=b"Clip"),
    "a time": plain(b"1", b"X-Request-Timeout: 250ms\r\n"),
    "a class": plain(b"1", b"Forebay-Priority: high\r\n"),
    "a stranger's header": plain(b"1", b"Traceparent: 00-ab-cd-01\r\n", b"X-A: b\r\n"),
    "an offer to upgrade": plain(b"1", b"Upgrade: h2c\r\n"),
    "a tenant": plain(b"1", b"Forebay-Tenant: acme\r\n"),
    "a key that nobody asks for": plain(b"1", b"Authorization: Bearer x\r\n"),
}
NOT_PLAIN = {
    "no such task": plain(task=b"ecko"),
    "a query": plain(task=b"echo?x=1"),
    "an escape": plain(task=b"%65cho"),
    "another method": plain().replace(b"POST", b"PUT"),
    "a time that is none": plain(b"1", b"X-Request-Timeout: soon\r\n"),
    "a class that is none": plain(b"1", b"Forebay-Priority: urgent\r\n"),
    "another type": plain().replace(b"application/json", b"text/plain"),
    "an encoding": plain(b"1", b"Content-Encoding: gzip\r\n"),
    "another origin": plain(b"1", b"Origin: http://evil.example\r\n"),
    "a page of another site": plain(b"1", b"Sec-Fetch-Site: cross-site\r\n"),
    "another host": plain().replace(b"localhost", b"evil.example"),
    "two hosts": plain(b"1", HOST),
    "a header twice": plain(b"1", b"X-A: 1\r\n", b"X-A: 2\r\n"),
    "no tenant's name": plain(b"1", b"Forebay-Tenant: a b\r\n"),
    "a budget": plain(b"1", b"Forebay-Budget: ci;rate=5\r\n"),
    "a job instead": plain(b"1", b"Prefer: respond-async\r\n"),
    "a stream": plain(b"1", b"Accept: text/event-stream\r\n"),
    "an expectation": plain(b"1", b"Expect: 100-continue\r\n"),
    "an odd expectation": plain(b"1", b"Expect: x\r\n"),
    "the last of its connection": plain(b"1", b"Connection: close\r\n"),
    "HTTP/1.0": plain(version=b"1.0"),
    "in chunks": head(b"Transfer-Encoding: chunked\r\n").replace(b"Content-Length: 1\r\n", b"")
    + b"1\r\n1\r\n0\r\n\r\n",
    "both lengths": head(b"Transfer-Encoding: chunked\r\n") + b"1\r\n1\r\n0\r\n\r\n",
    "no length": head().replace(b"Content-Length: 1\r\n", b""),
    "large": plain(b'"' + b"x" * 70_000 + b'"'),
    "longer than a body may be": plain(b'"' + b"x" * 200_000 + b'"'),
}  # fmt: skip


def counted(front):
    """Return what was counted of requests."""
    text = front.meters.render("")[0].decode()
    return [line for line in text.splitlines() if re.match(r"inference_(admission|slo|requests)", line)]


def answer_to(sent, told, **kwargs):
    """Return the answer and everything that is left behind by it."""

    async def run(front, basin, port, _):
        answer = await exchange(port, sent + HEALTH)
        jobs = [(job.task, job.payload, job.priority, job.deadline_at, job.created_at) for job in basin.jobs]
        return alike(answer), basin.asked[:1], jobs, counted(front)

    return against(run, Basin(**told), Standing(), body_bytes_max=100_000, **kwargs)


def both(watched, sent, told):
    """Return (what the hatch says, what the door says, how many the hatch took)."""
    short = answer_to(sent, told)
    taken = watched.taken
    watched.closed = True
    return short, answer_to(sent, told), taken


@pytest.mark.parametrize("told", REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_the_same_to_the_last_byte(told, watched):
    hatch_says, door_says, taken = both(watched, plain(), told)
    assert hatch_says == door_says and taken == 1
    assert status_of(hatch_says[0]) in (429, 503) and b"\r\nretry-after: " in hatch_says[0]
    assert hatch_says[0].count(b"HTTP/1.1 ") == 2, "the connection is kept"


@pytest.mark.parametrize("told", ENDS.values(), ids=ENDS)
def test_every_end_is_told_the_same_way(told, watched):
    hatch_says, door_says, taken = both(watched, plain(), told)
    assert hatch_says == door_says and taken == 1 and len(hatch_says[2]) == 1


@pytest.mark.parametrize("sent", BODIES.values(), ids=BODIES)
def test_bodies_and_heads_are_judged_alike(sent, watched):
    hatch_says, door_says, taken = both(watched, sent, {})
    assert hatch_says == door_says and taken == 1


@pytest.mark.parametrize("refuses", [None, TOO_LATE], ids=["let in", "refused"])
@pytest.mark.parametrize("sent", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_what_is_not_plain_goes_the_long_way(sent, refuses, watched):
    hatch_says, door_says, taken = both(watched, sent, {"refuses": refuses})
    assert hatch_says == door_says and taken == 0


def test_a_queue_that_is_paused_says_so_either_way(watched):
    async def run(front, basin, port, _):
        await front.broker.pause("echo", paused=True, now=front.clock.now())
        answer = await exchange(port, plain() + HEALTH)
        assert status_of(answer) == 503 and b"is paused" in answer and not basin.asked
        assert watched.taken == 0

    against(run)


KEYS = "key-of-acme-0123456789abcdef=acme,key-of-root-0123456789abcdef=root:admin"
ACME, ROOT = (b"Authorization: Bearer key-of-%b-0123456789abcdef\r\n" % name for name in (b"acme", b"root"))


@pytest.mark.parametrize(
    ("heads", "taken", "tenants"),
    [
        ((), 0, []),
        ((b"Authorization: Bearer nobody\r\n",), 0, []),
        ((ACME, ACME), 0, []),
        ((ACME,), 1, ["acme"]),
        ((ACME, b"Forebay-Tenant: other\r\n"), 1, ["acme"]),
        ((ROOT, b"Forebay-Tenant: other\r\n"), 1, ["other"]),
    ],
)
def test_with_keys_the_same_callers_are_let_in_as_the_same_tenants(heads, taken, tenants, watched):
    found = []

    async def run(_, basin, port, __):
        answer = await exchange(port, plain(b"1", *heads) + HEALTH)
        return alike(answer), [job.tenant for job in basin.jobs]

    for watched.closed in (False, True):
        found.append(against(run, clock=Standing(), keys=KEYS))
    assert found[0] == found[1] and watched.taken == taken
    assert found[0][1] == tenants


def test_a_tenant_with_limits_goes_through_the_door(watched):
    async def run(front, basin, port, _):
        front.watchman.quotas = {"acme": Quota(Limits(rate_per_s=0.001, burst=1))}
        answer = await exchange(port, plain(b"1", ACME) * 2 + HEALTH)
        assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"200", b"429", b"200"]
        assert b"ratelimit: " in answer and len(basin.jobs) == 1 and watched.taken == 0

    against(run, keys=KEYS)


def test_a_connection_remembers_nobody(watched):
    async def run(_, basin, port, __):
        one, other = (plain(b"1", b"Forebay-Tenant: " + name + b"\r\n") for name in (b"one", b"other"))
        long_way = plain(b"1", b"Accept: text/event-stream\r\n")
        for sent in (one, plain(), other, long_way):
            reader, writer = await connected(port)
            many = len(basin.jobs) + 2
            writer.write(one + sent)
            await eventually(lambda many=many: len(basin.jobs) == many)
            writer.close()
        assert [job.tenant for job in basin.jobs] == ["one", "one", "one", "", "one", "other", "one", ""]

    against(run)


def test_while_it_drains_answers_end_their_connection(watched):
    async def run(_, basin, port, server):
        basin.answers = False
        reader, writer = await connected(port)
        writer.write(plain())
        await eventually(lambda: basin.jobs)
        server.begin_drain()
        basin.answer(0)
        answer = await asyncio.wait_for(reader.read(), 30)
        assert status_of(answer) == 200 and b"\r\nconnection: close\r\n" in answer and watched.taken == 1
        refused = await exchange(port, plain())
        assert status_of(refused) == 503 and b"connection: close" in refused and watched.taken == 1
        writer.close()

    against(run)


def test_pipelined_refusals_are_answered_in_order_on_one_connection(watched):
    async def run(_, basin, port, __):
        basin.refuses = TOO_LATE
        answer = await exchange(port, plain() * 200 + HEALTH)
        statuses = re.findall(rb"HTTP/1\.1 (\d+)", answer)
        assert statuses == [b"429"] * 200 + [b"200"] and watched.taken == 200

    against(run)


def test_a_request_waits_for_the_answer_of_the_one_before_it(watched):
    async def run(_, basin, port, __):
        basin.answers = False
        reader, writer = await connected(port)
        writer.write(plain(b"1") + plain(b"2") + plain(b"3"))
        for number in range(3):
            await eventually(lambda many=number + 1: len(basin.jobs) == many)
            assert [job.payload for job in basin.jobs] == [b"1", b"2", b"3"][: number + 1]
            basin.answer(number)
            assert status_of(await read_one(reader)) == 200
        writer.close()
        assert watched.taken == 1, "those behind it go through the door"

    against(run)


def test_a_refusal_before_the_body_has_come_leaves_the_connection_good(watched):
    async def run(_, basin, port, __):
        basin.refuses = Rejected(Reason.FULL, 1.0, 10)
        reader, writer = await connected(port)
        for body in (b"[1,2,3]", b"POST /v1/jobs HTTP/1.1\r\n\r\n"):  # what follows a head is its body
            writer.write(head(length=len(body)))
            assert status_of(await read_one(reader)) == 429
            for at in range(len(body)):
                writer.write(body[at : at + 1])
                await writer.drain()
        basin.refuses = None
        writer.write(plain(b"7"))
        assert status_of(await read_one(reader)) == 200
        assert [job.payload for job in basin.jobs] == [b"7"] and watched.taken == 3
        writer.close()

    against(run)


def test_a_body_may_come_in_pieces(watched):
    async def run(_, basin, port, __):
        reader, writer = await connected(port)
        for piece in (plain(b"[1,2]")[:30], plain(b"[1,2]")[30:-4], b"1", b",", b"2]"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        assert status_of(await read_one(reader)) == 200
        assert basin.jobs[0].payload == b"[1,2]" and watched.taken == 1
        writer.close()

    against(run)


@pytest.mark.parametrize("sent", [head(length=9), head(length=9) + b"[1,2,"], ids=["head", "half a body"])
def test_a_client_that_hangs_up_within_the_body_starts_nothing(sent, watched):
    async def run(front, basin, port, _):
        _, writer = await connected(port)
        writer.write(sent)
        await eventually(lambda: watched.taken == 1)
        writer.close()
        await writer.wait_closed()
        assert status_of(await exchange(port, HEALTH)) == 200
        assert not basin.jobs and not front.log.lines

    against(run)


@pytest.mark.parametrize("how", ["close", "abort"])
def test_a_client_that_hangs_up_withdraws_its_request(how, watched):
    async def run(front, basin, port, _):
        basin.answers = False
        _, writer = await connected(port)
        writer.write(plain())
        await eventually(lambda: basin.jobs)
        getattr(writer.transport, how)()
        await eventually(lambda: basin.gone)
        basin.answer(0)  # too late: there is nobody
        assert watched.taken == 1 and not front.log.lines

    against(run)


def test_a_client_that_has_ended_its_side_is_answered(watched, monkeypatch):
    monkeypatch.setattr(guard, "_HALF_CLOSED_S", 30.0)  # the answer ends the connection, not the time

    async def run(_, basin, port, __):
        basin.answers = False
        reader, writer = await connected(port)
        writer.write(plain())
        writer.write_eof()
        await eventually(lambda: basin.jobs)
        basin.answer(0)
        answer = await asyncio.wait_for(reader.read(), 20)
        assert status_of(answer) == 200 and answer.endswith(b'{"y":7}') and watched.taken == 1
        writer.close()

    against(run)


def test_a_slow_body_is_let_go_and_starts_nothing(watched, monkeypatch):
    monkeypatch.setattr("forebay.server.limits.BODY_TIMEOUT_S", 0.3)
    monkeypatch.setattr(looking, "LOOK_S", 0.05)

    async def run(_, basin, port, __):
        answer = await exchange(port, head(length=9) + b"[1")
        assert status_of(answer) == 408 and b"connection: close" in answer and b"body_timeout" in answer
        assert not basin.jobs and watched.taken == 1

    against(run)


def test_idle_connections_are_closed_and_busy_ones_are_not(watched, monkeypatch):
    monkeypatch.setattr("forebay.server.serve.KEEP_ALIVE_S", 1.0)
    monkeypatch.setattr(looking, "LOOK_S", 0.05)

    async def run(_, basin, port, __):
        basin.answers = False
        busy, to_busy = await connected(port)
        to_busy.write(plain())
        await eventually(lambda: basin.jobs)
        for sent in (plain(b"{"), HEALTH.replace(b"Connection: close\r\n", b"")):
            reader, writer = await connected(port)
            writer.write(sent)
            assert status_of(await read_one(reader)) in (200, 400)
            assert await asyncio.wait_for(reader.read(), 30) == b"", "closed without a word"
            writer.close()
        basin.answer(0)  # after more than two times as long
        assert status_of(await read_one(busy)) == 200
        to_busy.close()

    against(run)


def test_a_client_that_reads_nothing_is_not_answered_into_memory(watched):
    async def run(_, basin, port, server):
        basin.refuses = TOO_LATE
        reader, writer = await connected(port, limit=1024)
        await eventually(lambda: server._uvicorn.server_state.connections)
        (connection,) = server._uvicorn.server_state.connections
        while not connection.flow.read_paused:
            writer.write(plain() * 50)
            await asyncio.sleep(0)
        assert connection.transport.get_write_buffer_size() < 2 * 1024 * 1024
        assert len(connection.pipeline) < 5_000, "what one reading had brought"
        assert 0 < watched.taken < 100_000, "what sockets hold"
        writer.transport.abort()
        assert reader

    against(run)


def test_a_payload_that_names_a_blob_is_counted_once(watched, tmp_path):
    async def run(front, basin, port, _):
        sent = b'{"$blob":"nothing"}'
        answer = await exchange(port, plain(sent) + HEALTH)
        assert status_of(answer) == 422 and watched.taken == 1 and not basin.jobs
        assert len(basin.asked) == 1
        assert front.meters.for_task("echo").arrivals == 1

    against(run, blobs=tmp_path)


def test_an_output_that_is_a_blob_is_sent_as_its_bytes(watched, tmp_path):
    async def run(_, basin, port, __):
        put = await exchange(
            port, b"PUT /v1/blobs HTTP/1.1\r\n" + HOST + b"Content-Type: audio/wav\r\n"
            b"Connection: close\r\nContent-Length: 11\r\n\r\nhello world",
        )  # fmt: skip
        blob_id = re.search(rb'"id":"([^"]+)"', put)[1]
        basin.output = b'{"$blob":"' + blob_id + b'"}'
        answer = await exchange(port, plain() * 2 + HEALTH)
        assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"200"] * 3
        assert answer.count(b"hello world") == 2 and b"content-type: audio/wav" in answer
        assert answer.count(b"forebay-request-id: ") == 2 and watched.taken >= 1
        basin.output = basin.output.replace(blob_id[-6:], b"000000")
        assert status_of(await exchange(port, plain() + HEALTH)) == 410

    against(run, blobs=tmp_path)


def test_nothing_begins_behind_the_last_answer_of_a_connection(watched):
    async def run(_, basin, port, server):
        basin.answers = False
        reader, writer = await connected(port)
        writer.write(head(length=1))
        await eventually(lambda: watched.taken == 1)
        server.begin_drain()
        writer.write(b"{" + plain(b"2") + HEALTH)  # what it sends is no JSON, and the answer to it the last
        answer = await asyncio.wait_for(reader.read(), 30)
        assert answer.count(b"HTTP/1.1 ") == 1 and status_of(answer) == 400
        assert not basin.jobs
        writer.close()

    against(run)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody says how long it lay there")
@pytest.mark.parametrize("more", [b"", b"Prefer: wait=1\r\n"])
def test_a_request_is_judged_by_its_whole_wait_and_not_by_when_it_was_read(more, monkeypatch):
    """It lay in its socket while the loop was busy; on both ways in, and on a connection that was used before."""
    monkeypatch.setattr(hatch, "lain_s", waits.lain_s)

    async def run(front, basin, port, server):
        with socket.create_connection(("127.0.0.1", port)) as client:
            for known in range(2):
                sent_at = front.clock.now()
                client.send(plain(b"1", more))
                while front.clock.now() < sent_at + 0.15:  # the loop is busy and reads nothing
                    pass
                await eventually(lambda known=known: len(basin.jobs) > known)
                job = basin.jobs[known]
                assert front.clock.now() - sent_at >= 0.15
                assert job.created_at < sent_at + 0.05
                assert job.deadline_at == pytest.approx(job.created_at + 0.2)

    against(run, clock=SystemClock())


def test_a_request_that_is_read_at_once_has_all_of_its_time(monkeypatch):
    monkeypatch.setattr(hatch, "lain_s", waits.lain_s)

    async def run(front, basin, port, server):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for known in range(3):
            sent_at = front.clock.now()
            writer.write(plain())
            await read_one(reader)
            assert basin.jobs[known].created_at >= sent_at - 0.002
        writer.close()

    against(run, clock=SystemClock())


class Heard:
    """Stands where Knocks does."""

    def __init__(self, came, spoke):
        self.came = lambda who, *, now: came.append(who)
        self.spoke = spoke.append


def test_who_connects_is_known_to_the_basin_until_they_speak():
    async def run(front, basin, port, server):
        came, spoke = [], []
        basin.knocks = Heard(came, spoke)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await eventually(lambda: len(came) == 1)
        assert not spoke
        for _ in range(2):
            writer.write(plain())
            await read_one(reader)
        assert spoke == came
        writer.close()

    against(run)
