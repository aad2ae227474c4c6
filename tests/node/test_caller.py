"""A call to an upstream is bounded in every direction, and whatever comes back has one clear meaning."""

import asyncio
import json
import socket

import pytest

from forebay.core.breaker import Ending
from forebay.core.upstream import Kind, UpstreamSpec
from forebay.node.caller import Caller, retry_after_s
from tests.node.hostile import chunk, chunked, says, upstream, whole

LONG = 30.0  # nothing here should come near it


def call(answer, *, total_s=LONG, payload=b'{"a": 1}', times=1, **limits):
    """Call an upstream that answers so; return (called, parts, upstream)."""

    async def main():
        async with upstream(answer) as served:
            caller = Caller(UpstreamSpec(url=served.url, **limits), now=lambda: 0.0, agent="forebay/test")
            parts = []
            try:
                for _ in range(times):
                    called = await caller.call("job-1", payload, total_s=total_s, on_parts=parts.extend)
            finally:
                await caller.close()
            return called, parts, served

    return asyncio.run(main())


def test_the_payload_is_the_body_and_the_answer_the_result():
    headers = (("Authorization", "Bearer k"), ("X-Team", "a"))
    called, parts, served = call(says(whole(b'{"b": [1, 2.50]}')), headers=headers)
    assert (called.judgement.kind, called.output, parts) == (Kind.GOOD, b'{"b": [1, 2.50]}', [])
    (asked,) = served.requests
    assert (asked.method, asked.target, asked.body) == ("POST", "/v1/do?x=1", b'{"a": 1}')
    assert asked.headers["authorization"] == "Bearer k"
    assert asked.headers["x-team"] == "a"
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["idempotency-key"] == "job-1"
    assert asked.headers["accept-encoding"] == "identity"


def test_headers_of_the_operator_come_in_place_of_ours():
    _, _, served = call(says(whole(b"1")), headers=(("Idempotency-Key", "mine"), ("Accept", "text/plain")))
    assert served.requests[0].headers["idempotency-key"] == "mine"
    assert served.requests[0].headers["accept"] == "text/plain"


def test_a_connection_is_used_again_and_cookies_are_not():
    called, _, served = call(says(whole(b"1", set_cookie="who=first; Path=/")), times=3)
    assert called.output == b"1"
    assert served.connections == 1
    assert all("cookie" not in asked.headers for asked in served.requests)


def test_text_is_a_json_string():
    called, _, _ = call(says(whole("grüß\n".encode(), kind="text/plain; charset=utf-8")))
    assert json.loads(called.output) == "grüß\n"


EVENTS = b'data: {"t": "a"}\n\ndata: {"t": "b"}\r\n\r\n: a comment\nevent: x\nid: 7\ndata: two\ndata: lines\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_are_parts_as_they_come_however_they_are_cut(size):
    async def answer(asked, writer):
        writer.write(chunked("text/event-stream"))
        for at in range(0, len(EVENTS), size):
            writer.write(chunk(EVENTS[at : at + size]))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    called, parts, _ = call(answer)
    assert [json.loads(part) for part in parts] == [{"t": "a"}, {"t": "b"}, "two\nlines"]
    assert json.loads(called.output) == [{"t": "a"}, {"t": "b"}, "two\nlines"]


def test_a_part_is_told_before_the_next_one_comes():
    seen = []

    async def main():
        first_told = asyncio.Event()

        async def answer(asked, writer):
            writer.write(chunked("text/event-stream") + chunk(b"data: 1\n\n"))
            await writer.drain()
            await asyncio.wait_for(first_told.wait(), LONG)
            writer.write(chunk(b"data: 2\n\n") + b"0\r\n\r\n")

        def on_parts(parts):
            seen.extend(parts)
            first_told.set()

        async with upstream(answer) as served:
            caller = Caller(UpstreamSpec(url=served.url), now=lambda: 0.0, agent="a")
            called = await caller.call("j", b"{}", total_s=LONG, on_parts=on_parts)
            await caller.close()
            return called

    assert asyncio.run(main()).output == b"[1,2]"
    assert seen == [b"1", b"2"]


def test_json_lines_are_parts_too():
    called, parts, _ = call(says(whole(b'{"n":1}\n\n{"n":2}', kind="application/x-ndjson")))
    assert parts == [b'{"n":1}', b'{"n":2}']
    assert called.output == b'[{"n":1},{"n":2}]'


def test_an_error_inside_a_stream_that_began_well_is_a_failure():
    body = b'data: {"t": "a"}\n\ndata: {"error": {"message": "CUDA out of memory"}}\n\ndata: [DONE]\n\n'
    called, _, _ = call(says(whole(body, kind="text/event-stream")))
    assert (called.judgement.kind, called.output) == (Kind.FAILED, None)
    assert "CUDA out of memory" in called.judgement.message


BUSY = [
    ("429 Too Many Requests", b"{}", {"retry_after": "7"}, 7.0, Ending.IGNORED),
    ("429 Too Many Requests", b"{}", {"retry_after_ms": "250", "retry_after": "1"}, 0.25, Ending.IGNORED),
    ("529 Overloaded", b'{"error": {"type": "overloaded_error", "message": "Overloaded"}}', {}, 1.0, Ending.IGNORED),
    ("498 Capacity", b"", {}, 1.0, Ending.IGNORED),
    ("503 Service Unavailable", b"", {"retry_after": "100000"}, 300.0, Ending.BAD),
    ("503 Service Unavailable", b"", {"retry_after": "soon"}, 1.0, Ending.BAD),
    # Cog, which does one at a time
    ("409 Conflict", b'{"detail": "Already running a prediction"}', {}, 1.0, Ending.IGNORED),
    ("409 Conflict", b"", {"retry_after": "2"}, 2.0, Ending.IGNORED),
    ("409 Conflict", b'{"title": "A request is outstanding for this Idempotency-Key"}', {}, 1.0, Ending.IGNORED),
    # TorchServe
    ("503 Service Unavailable", b'{"code": 503, "type": "ServiceUnavailableException", "message": "Model \\"m\\" has no worker to serve"}', {}, 1.0, Ending.BAD),
    # Triton
    ("400 Bad Request", b'{"error": "Exceeds maximum queue size"}', {}, 1.0, Ending.IGNORED),
    ("500 Internal Server Error", b'{"error": "in ensemble \'e\', Exceeds maximum queue size"}', {}, 1.0, Ending.BAD),
    # Ollama
    ("500 Internal Server Error", b'{"error": "server busy, please try again. maximum pending requests exceeded"}', {}, 1.0, Ending.BAD),
    # text-generation and text-embeddings servers
    ("429 Too Many Requests", b'{"error": "Model is overloaded", "error_type": "overloaded"}', {}, 1.0, Ending.IGNORED),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "headers", "after_s", "health"), BUSY)
def test_every_way_to_say_not_now_is_understood(status, body, headers, after_s, health):
    called, _, _ = call(says(whole(body, status=status, **headers)))
    judgement = called.judgement
    assert (judgement.kind, judgement.code, judgement.after_s) == (Kind.BUSY, "upstream_busy", after_s)
    assert (judgement.health, judgement.load) == (health, Ending.BAD)


@pytest.mark.parametrize(
    ("grpc", "status", "kind", "code"),
    [
        ("14", "200 OK", Kind.BUSY, "upstream_busy"),  # UNAVAILABLE
        ("8", "500 Internal Server Error", Kind.BUSY, "upstream_busy"),  # RESOURCE_EXHAUSTED
        ("4", "200 OK", Kind.FAILED, "upstream_failed"),  # DEADLINE_EXCEEDED
        ("3", "200 OK", Kind.REFUSED, "upstream_refused"),  # INVALID_ARGUMENT
        ("0", "200 OK", Kind.GOOD, ""),
        ("99", "200 OK", Kind.GOOD, ""),  # there is no such status
        ("x", "503 Service Unavailable", Kind.BUSY, "upstream_busy"),
    ],
)
def test_a_grpc_status_that_a_proxy_sends_along_counts(grpc, status, kind, code):
    headers = {"grpc-status": grpc, "grpc-message": "queue%20is%20full"}
    body = b"1" if kind is Kind.GOOD else b""
    judgement = call(says(whole(body, status=status, **headers)))[0].judgement
    assert (judgement.kind, judgement.code) == (kind, code)
    assert kind is Kind.GOOD or "queue is full" in judgement.message


FAILURES = [
    ("500 Internal Server Error", b'{"detail": "boom"}', Kind.FAILED, Ending.BAD, "it answered 500: boom"),
    ("502 Bad Gateway", b"<html>bad gateway</html>", Kind.FAILED, Ending.BAD, "it answered 502"),
    ("504 Gateway Timeout", b"", Kind.FAILED, Ending.BAD, "it answered 504"),
    ("401 Unauthorized", b'{"error": {"message": "wrong key"}}', Kind.FAILED, Ending.BAD, "wrong key"),
    ("409 Conflict", b'{"detail": "such a thing exists"}', Kind.FAILED, Ending.BAD, "it answered 409: such a thing"),
    ("302 Found", b"", Kind.FAILED, Ending.BAD, "redirects are not followed"),
    ("400 Bad Request", b'{"error": {"message": "max_tokens must be > 0"}}', Kind.REFUSED, Ending.IGNORED, "max_tokens"),
    ("422 Unprocessable", b'{"detail": [{"loc": ["body"]}]}', Kind.REFUSED, Ending.IGNORED, "it answered 422"),
    ("404 Not Found", b'{"object": "error", "message": "The model `x` does not exist."}', Kind.REFUSED, Ending.IGNORED, "does not exist"),
    ("413 Too Large", b"", Kind.REFUSED, Ending.IGNORED, "it answered 413"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "kind", "health", "words"), FAILURES)
def test_other_answers_are_the_servers_fault_or_the_payloads(status, body, kind, health, words):
    judgement = call(says(whole(body, status=status, location="http://127.0.0.1:1/")))[0].judgement
    assert (judgement.kind, judgement.health) == (kind, health)
    assert words in judgement.message


def test_a_redirect_is_not_followed():
    _, _, served = call(says(whole(b"", status="307 Temporary Redirect", location="/elsewhere")))
    assert len(served.requests) == 1


def test_nobody_there_means_later_and_uncharged():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/"

        async def main():
            caller = Caller(UpstreamSpec(url=url), now=lambda: 0.0, agent="a")
            called = await caller.call("j", b"{}", total_s=LONG, on_parts=list)
            await caller.close()
            return called

        judgement = asyncio.run(main()).judgement
    assert (judgement.kind, judgement.code, judgement.health) == (Kind.BUSY, "upstream_away", Ending.BAD)


async def silent(asked, writer):
    await asyncio.sleep(LONG)


async def half(asked, writer):
    writer.write(whole(b"x" * 100)[:-50])
    await writer.drain()
    await asyncio.sleep(LONG)


async def drip(asked, writer):
    writer.write(chunked("application/json"))
    while True:
        writer.write(chunk(b" "))
        await writer.drain()
        await asyncio.sleep(0.02)


async def drip_head(asked, writer):
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(100_000):
        writer.write(b"x-%d: 1\r\n" % number)
        await writer.drain()
        await asyncio.sleep(0.02)


CONNECT_S = 2.0  # who listens is there; a machine that stalls for less is no server that is away
SLOW = [
    (silent, dict(first_byte_s=0.2, connect_s=CONNECT_S), "the head of the answer took longer than 0.2 s"),
    (half, dict(idle_s=0.2), "the next piece of the answer took longer than 0.2 s"),
    (drip, dict(total_s=0.4), "the call took longer than 0.4 s"),
    (drip_head, dict(first_byte_s=0.3, connect_s=CONNECT_S), "the head of the answer took longer than 0.3 s"),
    (silent, dict(total_s=0.2), "the call took longer than 0.2 s"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "limits", "words"), SLOW, ids=lambda value: getattr(value, "__name__", None)
)
def test_what_is_slow_ends_at_its_limit(answer, limits, words):
    judgement = call(answer, **limits)[0].judgement
    assert (judgement.kind, judgement.code, judgement.message) == (Kind.FAILED, "upstream_timeout", words)
    assert (judgement.health, judgement.load) == (Ending.BAD, Ending.BAD)


async def reset(asked, writer):
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    writer.transport.abort()


async def reset_in_the_middle(asked, writer):
    writer.write(whole(b"x" * 100)[:-50])
    await writer.drain()
    await reset(asked, writer)


async def close_at_once(asked, writer):
    writer.close()


async def short(asked, writer):
    writer.write(whole(b"123")[:-1])
    writer.close()


async def cut_chunks(asked, writer):
    writer.write(chunked("text/event-stream") + chunk(b"data: 1\n\n") + b"ff\r\nabc")
    writer.close()


async def many_headers(asked, writer):
    writer.write(b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 2_000_000 + b"\r\n\r\n")


BROKEN = [reset, reset_in_the_middle, close_at_once, short, cut_chunks, many_headers, says(b"SSH-2.0-OpenSSH\r\n\r\n"),
          says(b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n"), says(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n12345")]  # fmt: skip


@pytest.mark.parametrize("answer", BROKEN, ids=[str(number) for number in range(len(BROKEN))])
def test_what_breaks_or_is_no_http_is_a_failed_attempt(answer):
    called, _, _ = call(answer)
    assert (called.judgement.kind, called.judgement.code) == (Kind.FAILED, "upstream_broken")
    assert called.judgement.health is Ending.BAD
    assert called.output is None


async def endless(asked, writer):
    writer.write(chunked("application/json"))
    while True:
        writer.write(chunk(b" " * 65_536))
        await writer.drain()


async def endless_line(asked, writer):
    writer.write(chunked("text/event-stream"))
    while True:
        writer.write(chunk(b"data: " + b"x" * 65_536))
        await writer.drain()


async def endless_events(asked, writer):
    writer.write(chunked("text/event-stream"))
    while True:
        writer.write(chunk(b"data: 1\n\n" * 5_000))
        await writer.drain()


async def endless_comments(asked, writer):
    writer.write(chunked("text/event-stream"))
    while True:
        writer.write(chunk(b": nothing\n" * 5_000))
        await writer.drain()


@pytest.mark.parametrize("answer", [endless, endless_line, endless_events, endless_comments])
def test_an_answer_without_end_is_cut_at_its_bound(answer):
    called, _, _ = call(answer, answer_bytes_max=200_000)
    assert (called.judgement.kind, called.judgement.code) == (Kind.REFUSED, "result_too_large")
    assert "200,000 bytes (answer_bytes_max)" in called.judgement.message


@pytest.mark.parametrize("answer", [endless, drip, silent])
def test_the_body_of_a_refusal_is_read_within_bounds(answer, monkeypatch):
    async def refusing(asked, writer):
        real = writer.write
        writer.write = lambda data: real(data.replace(b"200 OK", b"500 Broken"))
        if answer is silent:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n")
        await answer(asked, writer)

    monkeypatch.setattr("forebay.node.caller.PROBLEM_S", 0.3)
    judgement = call(refusing)[0].judgement
    assert judgement.code == "upstream_failed"
    assert judgement.message.startswith("it answered 500")
    assert len(judgement.message) < 300


@pytest.mark.parametrize("body", [b"{", b"", b"NaN", b"\xff\xfe", b"<html>", b"[" * 100_000])
def test_an_answer_that_is_no_json_is_no_result(body):
    called, _, _ = call(says(whole(body)))
    assert (called.judgement.kind, called.judgement.code) == (Kind.FAILED, "upstream_unreadable")


def test_an_encoded_answer_is_refused_so_that_no_bomb_is_opened():
    called, _, _ = call(says(whole(b"\x1f\x8b", content_encoding="gzip")))
    assert called.judgement.code == "upstream_unreadable"
    assert "encoded (gzip)" in called.judgement.message


def test_a_cancelled_call_lets_go_of_its_connection():
    async def main():
        async with upstream(silent) as served:
            caller = Caller(UpstreamSpec(url=served.url), now=lambda: 0.0, agent="a")
            task = asyncio.ensure_future(caller.call("j", b"{}", total_s=LONG, on_parts=list))
            while not served.requests:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [one for one in caller._transport._pool.connections if not one.is_closed()] == []
            await caller.close()

    asyncio.run(main())


WAITS = [
    ({"retry-after": "5"}, 5.0),
    ({"retry-after": "0"}, 0.0),
    ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90.0),
    ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, None),
    ({"retry-after": "-5"}, None),
    ({"retry-after": "inf"}, None),
    ({"retry-after": "nan"}, None),
    ({"retry-after": "tomorrow"}, None),
    ({"retry-after": "9" * 5000}, 1e64),
    ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
    ({"retry-after-ms": "²"}, None),
    ({}, None),
]  # fmt: skip


@pytest.mark.parametrize(("headers", "wait_s"), WAITS)
def test_retry_after_is_read_or_says_nothing(headers, wait_s):
    import httpx

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert retry_after_s(httpx.Headers(raw), now=10.0) == wait_s
