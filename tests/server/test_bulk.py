"""POST /v1/jobs with NDJSON: one verdict per line, in order, each line alone, in flat memory."""

import asyncio
import json
import tracemalloc

import pytest

from forebay.server import bulk as bulk_module
from forebay.server import line_reader
from forebay.server.stream import Lines
from tests.server.doors import (
    NDJSON,
    WAIT_MAX_S,
    Caller,
    a_front,
    call,
    connected,
    exchange,
    serving,
    status_of,
)

GOOD = b'{"task":"echo","payload":1}'


def test_one_verdict_per_line_in_order_and_a_bad_line_stands_alone():
    async def run(caller):
        answer, verdicts = await caller.bulk(
            GOOD, b"", b"{", b"   ", b'{"task":"nope","payload":1}', b'{"task":"Clip","payload":{}}', GOOD
        )
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert [(v["line"], v["status"]) for v in verdicts] == [
            (1, 202),
            (3, 400),
            (5, 404),
            (6, 422),
            (7, 202),
        ]
        assert await caller.depth() == 2

    call(run)


@pytest.mark.parametrize("lines", [(b'{"task":"","payload":1}',), (b'{"task":"","payload":1}', GOOD)])
def test_a_line_whose_task_has_no_name_is_refused_as_alone(lines):
    async def run(caller):
        alone = await caller.raw(lines[0])
        answer, verdicts = await caller.bulk(*lines)
        assert answer.status_code == 200 and alone.status_code == 404
        assert [verdict["status"] for verdict in verdicts] == [404, 202][: len(lines)]
        assert verdicts[0]["detail"] == alone.json()["detail"]

    call(run)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n\n\n"])
def test_the_last_line_needs_no_end(end):
    async def run(caller):
        _, verdicts = await caller.bulk(GOOD + b"\r\n" + GOOD + end)
        assert [verdict["status"] for verdict in verdicts] == [202, 202]

    call(run)


@pytest.mark.parametrize("body", [b"", b"\n", b" \n \n"])
def test_no_line_at_all_is_refused(body):
    async def run(caller):
        answer, _ = await caller.bulk(body)
        assert answer.status_code == 400 and answer.json()["detail"] == "the body is empty"

    call(run)


def test_two_lines_with_one_key_are_one_job():
    async def run(caller):
        line = {"task": "echo", "payload": 1, "idempotency_key": "k"}
        _, verdicts = await caller.bulk(line, line, line | {"payload": 2})
        assert [v["status"] for v in verdicts] == [202, 202, 422]
        assert verdicts[0]["job_id"] == verdicts[1]["job_id"] and verdicts[1]["replayed"] is True
        _, again = await caller.bulk(line, line, line | {"payload": 2})
        assert [v["status"] for v in again] == [202, 202, 422]
        assert again[0]["job_id"] == verdicts[0]["job_id"]

    call(run)


def test_the_header_for_one_job_is_refused_for_many():
    async def run(caller):
        answer, _ = await caller.bulk(GOOD, headers={"idempotency-key": "k"})
        assert answer.status_code == 422 and "idempotency_key" in answer.json()["detail"]

    call(run)


def test_tasks_may_be_mixed():
    async def run(caller):
        lines = [
            {"task": "echo", "payload": i} if i % 2 else {"task": "Clip", "payload": {"url": "x"}}
            for i in range(600)
        ]
        _, verdicts = await caller.bulk(*lines)
        assert [v["line"] for v in verdicts] == list(range(1, 601)) and {v["status"] for v in verdicts} == {
            202
        }
        assert (await caller.get("/v1/queues/Clip")).json()["depth"] == 300

    call(run)


def test_more_lines_than_the_limit_end_with_a_verdict_that_says_so(monkeypatch):
    for module in (bulk_module, line_reader):
        monkeypatch.setattr(module, "LINES_MAX", 700)

    async def run(caller):
        _, verdicts = await caller.bulk(*[GOOD] * 900)
        assert len(verdicts) == 701 and {v["status"] for v in verdicts[:700]} == {202}
        assert (verdicts[700]["status"], verdicts[700]["limit"]) == (413, 700)
        assert await caller.depth() == 700

    call(run)


def test_more_bytes_than_the_limit_are_refused_at_once_when_announced(monkeypatch):
    monkeypatch.setattr(bulk_module, "BULK_BYTES_MAX", 1000)

    async def run(caller):
        answer, _ = await caller.bulk(*[GOOD] * 100)
        assert answer.status_code == 413 and await caller.depth() == 0

    call(run)


@pytest.mark.parametrize("sizes", [(1,), (7,), (64, 1), (100_000,)])
def test_lines_are_cut_alike_however_the_bytes_arrive(sizes):
    body = b"first\n\n" + b"x" * 50 + b"\n" + b"y" * 51 + b"\nlast"
    lines, found, at, turn = Lines(50), [], 0, 0
    while at < len(body):
        size = sizes[turn % len(sizes)]
        found += lines.feed(body[at : at + size])
        at, turn = at + size, turn + 1
    found += lines.rest()
    assert found == [b"first", b"", b"x" * 50, None, b"last"]
    assert lines.count == 5


def test_a_line_without_end_is_dropped_while_it_comes():
    lines = Lines(1000)
    tracemalloc.start()
    for _ in range(1000):
        assert list(lines.feed(b"x" * 10_000)) == []
    assert tracemalloc.get_traced_memory()[1] < 200_000
    tracemalloc.stop()
    assert list(lines.feed(b"\nnext\n")) == [None, b"next"]


def test_few_groups_are_on_their_way_at_once_and_they_are_large_under_load():
    front = a_front()
    sizes, flying, most = [], 0, 0
    inner = front.broker

    class Slow:
        def __getattr__(self, name):
            return getattr(inner, name)

        async def enqueue(self, jobs, *, now):
            nonlocal flying, most
            sizes.append(len(jobs))
            flying += 1
            most = max(most, flying)
            await asyncio.sleep(0.002)
            flying -= 1
            return await inner.enqueue(jobs, now=now)

    front.broker = Slow()

    async def run():
        async with Caller(front) as caller:

            async def body():
                for _ in range(5000):
                    yield GOOD + b"\n"

            answer = await caller.post("/v1/jobs", content=body(), headers=NDJSON)
            verdicts = [json.loads(line) for line in answer.text.splitlines()]
            assert [v["line"] for v in verdicts] == list(range(1, 5001))

    asyncio.run(run())
    assert sum(sizes) == 5000 and most == 2
    assert max(sizes) == bulk_module.CHUNK_LINES_MAX and len(sizes) < 60


def test_a_slow_producer_has_its_verdict_before_it_sends_the_next_line():
    async def run():
        front = a_front()
        async with serving(front) as (port, _):
            reader, writer = await connected(port)
            writer.write(
                b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            for number in (1, 2, 3):
                line = GOOD + b"\n"
                writer.write(b"%x\r\n%s\r\n" % (len(line), line))
                async with asyncio.timeout(WAIT_MAX_S):
                    assert b'{"line":%d,"status":202' % number in await reader.readuntil(b"}\n")
            writer.write(b"0\r\n\r\n")
            async with asyncio.timeout(WAIT_MAX_S):
                await reader.readuntil(b"0\r\n\r\n")
            writer.close()

    asyncio.run(run())


def test_a_client_that_reads_only_after_it_has_sent_everything_is_served():
    lines = 30_000

    async def run():
        front = a_front()
        async with serving(front) as (port, _):
            body = (GOOD + b"\n") * lines
            head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            head += b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
            answer = await exchange(port, head, body)
            assert status_of(answer) == 200 and answer.count(b'"status":202') == lines

    asyncio.run(run())


def test_a_client_that_hangs_up_leaves_whole_jobs_only():
    async def run():
        front = a_front()
        async with serving(front) as (port, _):
            _, writer = await connected(port)
            part = (GOOD + b"\n") * 10 + GOOD[:9]
            writer.write(
                b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
                b"Content-Length: 999999\r\n\r\n" + part
            )
            async with asyncio.timeout(WAIT_MAX_S):
                while front.broker.depth_now("echo", now=front.clock.now()).open < 10:
                    await asyncio.sleep(0.005)
            writer.close()
            good = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            assert status_of(await exchange(port, good)) == 200
            assert front.broker.depth_now("echo", now=front.clock.now()).open == 10

    asyncio.run(run())
