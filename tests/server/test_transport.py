"""The transport: raw sockets against a real server."""

import asyncio
import contextlib
import socket

import msgspec
import pytest

from forebay.config import Settings
from forebay.server import guard, heads, looking
from forebay.server.answer import Body
from forebay.server.asking import Doorman, hosts_allowed
from forebay.server.problems import MisdirectedError
from tests.server.doors import WAIT_MAX_S, a_front, connected, exchange, finish, serving, status_of

GOOD = b'{"task":"echo","payload":1}'
HOST = b"Host: localhost\r\n"
TYPE = b"Content-Type: application/json\r\n"
POST = b"POST /v1/jobs HTTP/1.1\r\n" + HOST + TYPE
WHOLE = POST + b"Content-Length: %d\r\n" % len(GOOD)
CLOSE = b"Connection: close\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n"


def against(test, **kwargs):
    async def run():
        async with asyncio.timeout(40):
            front = a_front(**kwargs)
            async with serving(front) as (port, server):
                await test(front, port, server)
                # After anything: the next good request works.
                assert status_of(await exchange(port, HEALTH)) == 200

    asyncio.run(run())


def open_jobs(front):
    return front.broker.depth_now("echo", now=front.clock.now()).open


FRAMINGS = {
    "too small": (POST + CLOSE + b"Content-Length: 5\r\n\r\n" + GOOD, 400),
    "negative": (POST + b"Content-Length: -5\r\n\r\n" + GOOD, 400),
    "plus": (POST + b"Content-Length: +5\r\n\r\n" + GOOD, 400),
    "list": (POST + b"Content-Length: 27, 27\r\n\r\n" + GOOD, 400),
    "twice": (POST + b"Content-Length: 27\r\nContent-Length: 27\r\n\r\n" + GOOD, 400),
    "hex": (POST + b"Content-Length: 0x1b\r\n\r\n" + GOOD, 400),
    "immense": (POST + b"Content-Length: 99999999999999999999999\r\n\r\n" + GOOD, 400),
    "both": (
        POST + b"Content-Length: 27\r\nTransfer-Encoding: chunked\r\n\r\n1b\r\n" + GOOD + b"\r\n0\r\n\r\n",
        400,
    ),
    "both, turned": (
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 27\r\n\r\n1b\r\n" + GOOD + b"\r\n0\r\n\r\n",
        400,
    ),
    "odd coding": (POST + b"Transfer-Encoding: xchunked\r\n\r\n1b\r\n" + GOOD + b"\r\n0\r\n\r\n", 400),
    "gzip, chunked": (
        POST + CLOSE + b"Transfer-Encoding: gzip, chunked\r\n\r\n1b\r\n" + GOOD + b"\r\n0\r\n\r\n",
        400,
    ),
    "another host": (WHOLE.replace(b"/v1", b"http://evil.example/v1") + b"\r\n" + GOOD, 400),
    "another port": (WHOLE.replace(b"/v1", b"http://localhost:99/v1") + b"\r\n" + GOOD, 400),
    "coding, space": (POST + b"Transfer-Encoding : chunked\r\n\r\n1b\r\n" + GOOD + b"\r\n0\r\n\r\n", 400),
    "bad chunk size": (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + GOOD + b"\r\n0\r\n\r\n", 400),
    "negative chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n" + GOOD + b"\r\n0\r\n\r\n", 400),
    "immense chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\n" + GOOD, 400),
    "NUL in a header": (WHOLE + b"X: a\x00b\r\n\r\n" + GOOD, 400),
    "bare CR": (WHOLE + b"X: a\rb\r\n\r\n" + GOOD, 400),
    "obs-fold": (WHOLE + b"X: a\r\n b\r\n\r\n" + GOOD, 400),
    "no name": (WHOLE + b": a\r\n\r\n" + GOOD, 400),
    "no host": (b"POST /v1/jobs HTTP/1.1\r\n" + TYPE + CLOSE + b"Content-Length: 27\r\n\r\n" + GOOD, 400),
    "two hosts": (WHOLE + CLOSE + HOST + b"\r\n" + GOOD, 400),
    "two types": (WHOLE + CLOSE + TYPE + b"\r\n" + GOOD, 400),
    "not HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 100, 400),
    "HTTP/3.7": (b"GET / HTTP/3.7\r\n\r\n", 400),
    "odd method": (b"BREW / HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "one header of 64 KB": (WHOLE + b"X: " + b"a" * 65536 + b"\r\n\r\n" + GOOD, 431),
    "10,000 headers": (WHOLE + b"".join(b"X-%d: 1\r\n" % i for i in range(10_000)) + b"\r\n" + GOOD, 431),
    "headers without end": (WHOLE + b"X: " + b"a" * 200_000, 431),
    "long address": (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    "odd expectation": (WHOLE + CLOSE + b"Expect: x\r\n\r\n" + GOOD, 417),
    "expect, too long": (POST + b"Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n", 413),
    "too long": (POST + b"Content-Length: 99999999\r\n\r\n" + b"x" * 100_000, 413),
}


def test_bad_framing_is_refused_closes_the_connection_and_stores_nothing():
    smuggled = b"GET /v1/tasks HTTP/1.1\r\n" + HOST + b"\r\n"
    wrong = {}

    async def run(front, port, _):
        for name, (sent, status) in FRAMINGS.items():
            answer = await exchange(port, sent + (smuggled if b"chunked" in sent else b""))
            one = answer.count(b"HTTP/1.1 ") == 1 and b"100 Continue" not in answer
            problem = b"application/problem+json" in answer
            if (status_of(answer), one, problem, open_jobs(front)) != (status, True, True, 0):
                wrong[name] = answer[:300]

    against(run)
    assert not wrong


@pytest.mark.parametrize("value", [b"caf\xe9", b"\xc3\xa9", b"a\tb"])
def test_a_header_that_is_not_ascii_does_no_harm(value):
    async def run(front, port, _):
        answer = await exchange(port, WHOLE + CLOSE + b"X: " + value + b"\r\n\r\n" + GOOD)
        assert status_of(answer) == 202 and open_jobs(front) == 1

    against(run)


def test_a_chunked_body_is_cut_off_as_soon_as_it_passes_the_limit():
    async def run(front, port, _):
        reader, writer = await connected(port)
        writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        sent = 0
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(WAIT_MAX_S):
                while sent < 64:
                    writer.write(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
                    await writer.drain()
                    await asyncio.sleep(0.001)
                    sent += 1
                    if reader._buffer:
                        break
        async with asyncio.timeout(WAIT_MAX_S):
            assert status_of(await reader.read(4096)) == 413
        assert sent < 60 and open_jobs(front) == 0
        writer.close()

    against(run, body_bytes_max=100_000)


def test_left_over_bytes_after_a_body_are_the_next_request():
    async def run(front, port, _):
        answer = await exchange(port, WHOLE + b"\r\n" + GOOD + HEALTH)
        assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"202", b"200"]
        assert open_jobs(front) == 1

    against(run)


def test_pipelined_requests_are_answered_in_order():
    async def run(front, port, _):
        one = WHOLE + b"\r\n" + GOOD
        answer = await exchange(port, one * 20 + HEALTH)
        assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"202"] * 20 + [b"200"]
        assert open_jobs(front) == 20

    against(run)


def test_slow_heads_and_silent_connections_are_closed(monkeypatch):
    monkeypatch.setattr(looking, "LOOK_S", 0.05)

    async def run(front, port, server):
        reader, writer = await connected(port)
        writer.write(b"GET / HTTP/1.1\r\nHost: loc")
        async with asyncio.timeout(WAIT_MAX_S):
            while not any(one._head_bytes for one in server._uvicorn.server_state.connections):
                await asyncio.sleep(0.005)
        monkeypatch.setattr(guard, "HEADERS_TIMEOUT_S", 0.3)  # now: it says why when a head has begun
        slow = await reader.read()
        assert status_of(slow) == 408 and b"headers" in slow
        writer.close()
        assert await exchange(port, b"") == b""
        assert 'bound="headers_timeout"' in front.meters.render("")[0].decode()

    against(run)


def test_a_slow_body_is_let_go_and_stores_nothing(monkeypatch):
    monkeypatch.setattr("forebay.server.answer.BODY_TIMEOUT_S", 0.3)

    async def run(front, port, _):
        answer = await exchange(port, WHOLE + b"\r\n" + GOOD[:5])
        assert status_of(answer) == 408 and b"connection: close" in answer.lower()
        assert open_jobs(front) == 0

    against(run)
    assert Body.read


@pytest.mark.timed
def test_five_hundred_silent_connections_do_no_harm():
    async def run(_, port, __):
        silent = [await connected(port) for _ in range(500)]
        for _, writer in silent[:250]:
            writer.write(b"GET /")
        started = asyncio.get_running_loop().time()
        assert status_of(await exchange(port, HEALTH)) == 200
        assert asyncio.get_running_loop().time() - started < 1.0
        for _, writer in silent:
            writer.close()

    against(run)


@pytest.mark.parametrize(
    "sent",
    [
        *(WHOLE + b"\r\n" + GOOD[:cut] for cut in (1, 10, 26)),
        POST + b"Content-Length: 30\r\n\r\n" + GOOD + b"  ",  # what came is whole JSON, the body is not
        POST + b"Transfer-Encoding: chunked\r\n\r\n1b\r\n" + GOOD + b"\r\n",
    ],
    ids=["1 byte", "10 bytes", "all but one byte", "all but white space", "all but the last chunk"],
)
def test_a_client_that_hangs_up_within_the_body_stores_nothing(sent):
    async def run(front, port, _):
        _, writer = await connected(port)
        writer.write(sent)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert status_of(await exchange(port, HEALTH)) == 200
        assert open_jobs(front) == 0 and "request_failed" not in dict(front.log.lines)

    against(run)


def test_a_client_that_hangs_up_before_the_answer_left_a_whole_job():
    async def run(front, port, _):
        _, writer = await connected(port)
        writer.write(WHOLE + b"Idempotency-Key: k\r\n\r\n" + GOOD)
        await writer.drain()
        writer.transport.abort()
        async with asyncio.timeout(WAIT_MAX_S):
            while not open_jobs(front):
                await asyncio.sleep(0.005)
        answer = await exchange(port, WHOLE + CLOSE + b"Idempotency-Key: k\r\n\r\n" + GOOD)
        assert status_of(answer) == 202 and b"idempotency-replayed: true" in answer.lower()
        assert open_jobs(front) == 1

    against(run)


@pytest.mark.parametrize("close", [b"", CLOSE])
def test_a_client_that_ends_its_side_after_its_requests_is_answered(close, monkeypatch):
    monkeypatch.setattr(guard, "_HALF_CLOSED_S", 30.0)  # the last answer ends the connection, not the time

    async def run(front, port, _):
        reader, writer = await connected(port)
        writer.write((WHOLE + b"\r\n" + GOOD) * 4 + WHOLE + close + b"\r\n" + GOOD)
        writer.write_eof()
        async with asyncio.timeout(WAIT_MAX_S):
            answer = await reader.read()  # to the end: the server closes after the last answer
        assert answer.count(b"HTTP/1.1 202 ") == open_jobs(front) == 5
        writer.close()

    against(run)


def test_an_answer_that_streams_goes_on_for_a_client_that_has_ended_its_side(monkeypatch):
    """The server looks now and then whether it wrote something since its last look. How much it writes in
    a time is the machine's affair, so each look here comes after a write."""
    monkeypatch.setattr(guard, "_HALF_CLOSED_S", 0.01)
    body, looks, look = GOOD + (b"\n" + GOOD) * 59_999, [], guard.GuardedProtocol._let_go

    def look_after_a_write(protocol, counted, seen):
        if counted.writes > seen or protocol.transport.is_closing():
            looks.append(seen)
            look(protocol, counted, seen)
        else:
            protocol.loop.call_later(0.01, look_after_a_write, protocol, counted, seen)

    monkeypatch.setattr(guard.GuardedProtocol, "_let_go", look_after_a_write)

    async def run(front, port, _):
        reader, writer = await connected(port)
        head = POST.replace(b"json", b"x-ndjson") + CLOSE + b"Content-Length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        writer.write_eof()
        async with asyncio.timeout(WAIT_MAX_S):
            answer = await reader.read()
        assert answer.count(b'"status":202') == 60_000 and answer.endswith(b"0\r\n\r\n")
        assert len(looks) > 2
        writer.close()

    against(run)


async def seen(condition):
    async with asyncio.timeout(WAIT_MAX_S):
        while not condition():
            await asyncio.sleep(0.002)


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (b"1b\r\n" + GOOD + b"\r\n0\r\nX: 1\r\n", b"Y: 1\r\n" * 20_000),
        (b"1b\r\n" + GOOD + b"\r\n0\r\nX: ", b"y" * 100_000),
        (b"1b;e=", b"y" * 100_000),
        (b"0", b"0" * 100_000),
    ],
    ids=["trailers", "one trailer", "an extension", "a size"],
)
def test_what_comes_with_a_chunked_body_is_bounded_as_heads_are(begun, more):
    async def run(front, port, server):
        reader, writer = await connected(port)
        writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n" + begun)
        await seen(lambda: any(one.cycle for one in server._uvicorn.server_state.connections))
        writer.write(more)
        with contextlib.suppress(ConnectionError):
            answer = await asyncio.wait_for(reader.read(), 20)
            assert status_of(answer) == 431 and answer.count(b"HTTP/1.1 ") == 1
        assert open_jobs(front) == 0
        writer.close()

    against(run)


BROKEN = {
    "no HTTP": (b"\x16\x03\x01" + b"x" * 20, 400),
    "a long address": (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    "a bad chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
}


@pytest.mark.parametrize("behind", BROKEN)
@pytest.mark.parametrize("prefer", [b"", b"Prefer: wait=20\r\n"], ids=["stored", "waited for"])
def test_what_is_no_request_is_told_after_the_answer_to_the_one_before_it(behind, prefer):
    """Told at once, it would be taken for that answer."""
    broken, status = BROKEN[behind]

    async def run(front, port, _):
        enqueue, stored = front.broker.enqueue, asyncio.Event()

        async def held(jobs, *, now):
            await stored.wait()
            return await enqueue(jobs, now=now)

        front.broker.enqueue = held
        reader, writer = await connected(port)
        writer.write(WHOLE + prefer + b"\r\n" + GOOD + broken)
        await writer.drain()
        assert status_of(await exchange(port, HEALTH)) == 200  # what came before it was read, too
        stored.set()
        if prefer:
            await seen(lambda: open_jobs(front))
            await finish(front)
        answer = await asyncio.wait_for(reader.read(), 20)
        told = [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]
        assert told == [200 if prefer else 202, status]
        writer.close()

    against(run)


def test_an_answer_that_has_begun_is_not_broken_into():
    """A client would take what is told there for a part of it."""
    body = b"%x\r\n" % (len(GOOD) + 1) + GOOD + b"\n\r\n"

    async def run(front, port, _):
        reader, writer = await connected(port)
        writer.write(POST.replace(b"json", b"x-ndjson") + b"Transfer-Encoding: chunked\r\n\r\n" + body)
        answer = await asyncio.wait_for(reader.readuntil(b'"status":202'), 20)
        writer.write(b"zz\r\n")
        answer += await asyncio.wait_for(reader.read(), 20)
        assert answer.count(b"HTTP/1.1 ") == 1 and not answer.endswith(b"0\r\n\r\n")
        writer.close()

    against(run)


@pytest.mark.parametrize("closing", [False, True])
def test_a_client_that_takes_nothing_of_its_answers_is_let_go(closing, monkeypatch):
    """One that was told to close waits for what was written to be taken, and would wait without end."""
    monkeypatch.setattr(looking, "LOOK_S", 0.05)
    get = b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"

    async def run(front, port, server):
        connections = server._uvicorn.server_state.connections
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
        await seen(lambda: connections)
        (connection,) = connections
        while not connection.flow.write_paused:
            await asyncio.get_running_loop().sock_sendall(client, get)
            await asyncio.sleep(0)
        if closing:
            connection.transport.close()
        await seen(lambda: connection._unread_b)
        monkeypatch.setattr("forebay.server.limits.ANSWER_TIMEOUT_S", 0.1)
        await seen(lambda: not connections)
        assert 'bound="unread_answer"' in front.meters.render("")[0].decode()
        client.close()

    against(run)


def test_names_that_are_made_up_do_not_keep_the_real_one_from_being_known():
    doorman = Doorman(None)
    for number in range(200):
        with pytest.raises(MisdirectedError):
            doorman.check(scope_of(b"h%d.example" % number))
    doorman.check(scope_of(b"localhost"))
    assert doorman.knows(b"localhost") and not doorman.knows(b"h1.example")
    assert len(doorman._known) <= 64


def test_who_is_not_answered_for_its_name_is_told_which_setting_allows_it():
    for allowed, told in (((), "the setting hosts_allowed"), (("a.example",), "is not among hosts_allowed")):
        settings = msgspec.structs.replace(Settings(), hosts_allowed=allowed)
        with pytest.raises(MisdirectedError, match=told):
            Doorman(hosts_allowed(settings, keyed=False)).check(scope_of(b"b.example"))


def scope_of(host):
    return {"type": "http", "method": "GET", "headers": [(b"host", host)], "query_string": b""}


@pytest.mark.parametrize("upgrade", [b"Upgrade: h2c", b"UPGRADE: h2c", b"upgrade: websocket"])
def test_an_offer_to_change_the_protocol_is_passed_over(upgrade):
    """Some clients make it with every first request, and a server that takes it for the end of HTTP reads
    neither the body nor what follows."""
    offer = upgrade + b"\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAA\r\n"

    async def run(front, port, _):
        answer = await exchange(port, WHOLE + offer + b"\r\n" + GOOD + HEALTH)
        assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"202", b"200"]
        body = b'{"task":"echo","payload":"\\r\\nUpgrade: a"}'
        whole = POST + CLOSE + b"Content-Length: %d\r\n\r\n" % len(body) + body
        assert status_of(await exchange(port, whole)) == 202
        assert open_jobs(front) == 2

    against(run)


def test_only_the_head_loses_its_offer():
    """What follows it may be anybody's bytes, of the same length to the last."""
    offer = b"\r\nUpgrade : h2c"
    head, body = b"PUT / HTTP/1.1" + offer + b"\r\n\r\n", b"x" + offer + b"\r\n"
    assert heads.without_upgrade(head + body) == head.replace(b"Up", b"Ux") + body
    assert heads.without_upgrade(b"GET / HTTP/1.1\r\nUpgrade-Insecure-Requests: 1\r\n\r\n").count(b"Up") == 1


def test_malformed_requests_write_no_lines_of_their_own(caplog):
    async def run(front, port, _):
        for _ in range(20):
            assert status_of(await exchange(port, b"\x16\x03\x01" + b"x" * 100)) == 400
        assert not front.log.lines

    against(run)
    assert not caplog.records


def test_websockets_are_not_spoken():
    async def run(_, port, __):
        answer = await exchange(
            port,
            b"GET /v1/jobs HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            until=b"\r\n\r\n",
        )
        assert status_of(answer) in (200, 400, 404, 426)

    against(run)


def test_a_draining_server_answers_until_it_stops_and_resets_nobody():
    async def run(front, port, server):
        server.begin_drain()
        answer = await exchange(port, WHOLE + b"\r\n" + GOOD)
        assert status_of(answer) == 503
        low = answer.lower()
        assert b"connection: close" in low and b"retry-after: " in low
        assert status_of(await exchange(port, HEALTH)) == 200
        ready = await exchange(port, HEALTH.replace(b"healthz", b"readyz"))
        assert status_of(ready) == 503 and b'"draining"' in ready

    against(run)


def test_stop_ends_long_polls_with_an_answer():
    async def run():
        front = a_front()
        async with serving(front) as (port, server):
            answer = await exchange(port, WHOLE + CLOSE + b"\r\n" + GOOD)
            job_id = answer.split(b'"job_id":"')[1][:36]
            request = b"GET /v1/jobs/" + job_id + b"?wait=50 HTTP/1.1\r\n" + HOST + b"\r\n"
            waiting = asyncio.ensure_future(exchange(port, request))
            async with asyncio.timeout(WAIT_MAX_S):
                while not server._door.waiters.held:
                    await asyncio.sleep(0.005)
            async with asyncio.timeout(WAIT_MAX_S):
                await server.stop()
                assert status_of(await waiting) == 200
            with pytest.raises(ConnectionError):
                await asyncio.open_connection("127.0.0.1", port)

    asyncio.run(run())


def test_a_server_ends_when_it_is_told_to_however_seldom_it_looks(monkeypatch):
    monkeypatch.setattr("forebay.server.serve._TICK_S", 3600.0)

    async def run():
        async with serving(a_front()) as (port, server):
            answer = await exchange(
                port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            assert status_of(answer) == 200 and b"\r\ndate: " in answer
        assert server._task.done()

    asyncio.run(run())
