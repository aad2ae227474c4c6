"""POST /v1/jobs: what is refused, by name and rule, and that a refusal stores nothing."""

import gc
import json
import time

import pytest

from forebay.core.task import TaskSpec
from tests.server.doors import call

BODIES = {
    "empty": (b"", 400),
    "blank": (b"  \n ", 400),
    "null": (b"null", 422),
    "list": (b"[]", 422),
    "text": (b'"x"', 422),
    "number": (b"3", 422),
    "nothing said": (b"{}", 422),
    "no payload": (b'{"task":"echo"}', 422),
    "byte order mark": (b'\xef\xbb\xbf{"task":"echo","payload":1}', 400),
    "utf-16": ('{"task":"echo","payload":1}'.encode("utf-16"), 400),
    "latin-1": ('{"task":"echo","payload":"é"}'.encode("latin-1"), 400),
    "overlong": (b'{"task":"echo","payload":"\xc0\xaf"}', 400),
    "F5": (b'{"task":"echo","payload":"\xf5\x80\x80\x80"}', 400),
    "lone surrogate": (b'{"task":"echo","payload":"\\ud800"}', 400),
    "NUL in the task": (b'{"task":"ec\\u0000ho","payload":1}', 404),
    "NUL in metadata": (b'{"task":"echo","payload":1,"metadata":{"a":"\\u0000"}}', 422),
    "NaN": (b'{"task":"echo","payload":NaN}', 400),
    "Infinity": (b'{"task":"echo","payload":Infinity}', 400),
    "-Infinity": (b'{"task":"echo","payload":-Infinity}', 400),
    "1e400": (b'{"task":"echo","payload":1e400}', 400),
    "-1e400": (b'{"task":"echo","payload":[-1e400]}', 400),
    "5,000 digits": (b'{"task":"echo","payload":' + b"9" * 5000 + b"}", 400),
    "100,000 [": (b'{"task":"echo","payload":' + b"[" * 100_000, 400),
    "100,000 {": (b'{"task":"echo","payload":' + b'{"a":' * 100_000, 400),
    "101 levels": (b'{"task":"echo","payload":' + b"[" * 101 + b"]" * 101 + b"}", 400),
    "trailing garbage": (b'{"task":"echo","payload":1} x', 400),
    "two documents": (b'{"task":"echo","payload":1}{"task":"echo","payload":1}', 400),
    "comment": (b'{"task":"echo","payload":1 /* */}', 400),
    "single quotes": (b"{'task':'echo','payload':1}", 400),
    "trailing comma": (b'{"task":"echo","payload":1,}', 400),
    "control character": (b'{"task":"echo","payload":"a\x01"}', 400),
    "cut": (b'{"task":"echo","payl', 400),
    "schema": (b'{"task":"Clip","payload":{"url":""}}', 422),
    "schema type": (b'{"task":"Clip","payload":[1]}', 422),
    "unknown task": (b'{"task":"nope","payload":1}', 404),
    "dunder task": (b'{"task":"__class__","payload":1}', 404),
    "module path": (b'{"task":"os.system","payload":1}', 404),
    "long task": (b'{"task":"' + b"t" * 100_000 + b'","payload":1}', 404),
    "odd task": ('{"task":"écho:*>/#","payload":1}'.encode(), 404),
    "other case": (b'{"task":"ECHO","payload":1}', 404),
    "homoglyph": ('{"task":"eсho","payload":1}'.encode(), 404),
    "task is a number": (b'{"task":1,"payload":1}', 422),
    "misspelt field": (b'{"task":"echo","payload":1,"prioritty":"high"}', 422),
    "foreign field": (b'{"task":"echo","payload":1,"ttl_ms":5}', 422),
    "callback": (b'{"task":"echo","payload":1,"callback":"http://x"}', 422),
}


@pytest.mark.parametrize("way", ["single", "bulk"])
@pytest.mark.parametrize(("body", "status"), BODIES.values(), ids=BODIES)
def test_an_odd_body_is_refused_alike_on_both_ways_and_stores_nothing(body, status, way):
    if way == "bulk" and (b"\n" in body or not body.strip() or body[:2] in (b"\xff\xfe", b"\xfe\xff")):
        pytest.skip("not one line")

    async def run(caller):
        started = time.process_time()
        if way == "single":
            problem = (await caller.raw(body)).json()
        else:
            _, (problem, good) = await caller.bulk(body, b'{"task":"echo","payload":1}')
            assert good["status"] == 202
        assert problem["status"] == status
        assert problem["code"] and len(json.dumps(problem)) < 3000
        assert time.process_time() - started < 0.5
        assert await caller.depth() == (0 if way == "single" else 1)
        assert (await caller.submit()).status_code == 202
        assert not [line for line in caller.front.log.lines if line[0] == "request_failed"]

    gc.disable()  # what other tests of this process left takes longer to look through than any body
    try:
        call(run)
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{}", "task"),
        (b'{"task":"echo"}', "payload"),
        (b'{"task":"echo","payload":1,"prioritty":1}', "priority"),
        (b'{"task":"Clp","payload":1}', "Clip"),
        (b'{"task":"Clip","payload":{"url":"x","pages":0}}', "payload.pages"),
        (b'{"task":"Clip","payload":{}}', "url"),
        (b'{"task":"echo","payload":"\\ud800"}', "a lone surrogate"),  # msgspec calls it cut off
        (b'{"task":"echo","payload":"\\uD83D aaaaaaaa"}', "a lone surrogate"),
        (b'{"task":"echo","payload":"\\ud83d\\ude00', "ends too early"),
    ],
)
def test_a_refusal_names_the_field_or_the_nearest_name(body, told):
    async def run(caller):
        problem = (await caller.raw(body)).json()
        assert told in problem["detail"]

    call(run)


def test_a_refusal_does_not_echo_bodies_nor_what_is_larger_than_a_scalar():
    async def run(caller):
        for body in (
            b'{"task":"Clip","payload":{"url":{"a":"hunter2"}}}',
            b'{"task":"Clip","payload":["hunter2"]}',
            b'{"task":"echo","hunter2',
        ):
            assert "hunter2" not in (await caller.raw(body)).text

    call(run)


@pytest.mark.parametrize(
    ("payload", "path", "rule"),
    [
        ({"url": "x", "pages": -3}, "payload.pages", "-3 is less than the minimum of 1"),
        ({"url": "x", "pages": "many"}, "payload.pages", '"many" is not of type "integer"'),
        ({"url": "", "pages": 1}, "payload.url", '"" is shorter than 1 character'),
        ({"url": [1]}, "payload.url", 'an array is not of type "string"'),
        ([1], "payload", 'an array is not of type "object"'),
        ({"url": "x", "pages": "y" * 500}, "payload.pages", f'"{"y" * 59}…" is not of type "integer"'),
        ({"url": "x", "pages": "\u202e\x1b"}, "payload.pages", '"\\u202e\\u001b" is not of type "integer"'),
        ({}, "payload", '"url" is a required property'),
    ],
)
def test_a_payload_is_refused_by_field_rule_and_value(payload, path, rule):
    async def run(caller):
        problem = (await caller.submit("Clip", payload)).json()
        assert problem["errors"] == [{"path": path, "rule": rule}]
        assert problem["detail"] == f"{path}: {rule}"

    call(run)


def test_a_constant_names_what_came_instead():
    spec = TaskSpec(name="echo", input_schema={"const": 1})

    async def run(caller):
        assert (await caller.submit(payload=2)).json()["detail"] == "payload: 1 was expected, not 2"

    call(run, tasks={"echo": spec, "Clip": TaskSpec(name="Clip")})


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("ttl", -1, 'must be a duration (seconds or a text like "250ms", "5m", "6h"), not -1'),
        ("ttl", 0, "must be more than 0, not 0"),
        ("ttl", [], "must be int | float | str | null, not array"),
        (
            "priority",
            "urgent",
            'must be high, normal, low or an integer from 0 (most urgent) to 9, not "urgent"',
        ),
        ("run_at", "soon", 'must be an RFC 3339 time with a zone, like 2026-03-01T09:30:00Z, not "soon"'),
        ("run_at", "2001-02-30T00:00:00Z", 'must be a day and a time that exist, not "2001-02-30T00:00:00Z"'),
        ("deadline", "2001-01-01T00:00:00Z", 'must lie ahead, not "2001-01-01T00:00:00Z"'),
        ("attempts_max", 0, "must be an integer from 1 to 1000, not 0"),
    ],
)
def test_an_option_is_refused_as_field_must_be_rule_not_value(option, value, rule):
    async def run(caller):
        problem = (await caller.submit(**{option: value})).json()
        assert problem["detail"] == f"{option} {rule}"
        assert problem["errors"] == [{"path": option, "rule": rule}]

    call(run)


def test_an_unknown_task_without_a_near_name_lists_ten_of_those_served():
    async def run(caller):
        detail = (await caller.submit("zzzz")).json()["detail"]
        assert detail == "no such task: 'zzzz' (served: " + ", ".join(f"t{n:02d}" for n in range(10)) + ", …)"
        near = (await caller.submit("t0")).json()["detail"]
        assert "did you mean" in near and "served" not in near

    call(run, tasks={f"t{n:02d}": TaskSpec(name=f"t{n:02d}") for n in range(12)})


OPTIONS = [
    ("priority", -1, 422), ("priority", 0, 202), ("priority", 9, 202), ("priority", 10, 422),
    ("priority", "high", 202), ("priority", "5", 422), ("priority", "HIGH", 422), ("priority", 2.5, 422),
    ("priority", 2.0, 422), ("priority", True, 422), ("priority", None, 202), ("priority", 10**30, 422),
    ("run_at", "0001-01-01T00:00:00Z", 202), ("run_at", "2001-01-01T00:00:00Z", 202),
    ("run_at", "9999-12-31T23:59:59Z", 422), ("run_at", "2099-01-01T00:00:00Z", 422),
    ("run_at", "2001-01-01T00:00:00", 422), ("run_at", "2001-02-30T00:00:00Z", 422),
    ("run_at", "2016-12-31T23:59:60Z", 422), ("run_at", "2001-01-01", 422), ("run_at", 5, 422),
    ("run_at", "tomorrow", 422), ("run_at", "", 422), ("run_at", "2001-01-01T25:00:00Z", 422),
    ("run_at", "0001-01-01T00:00:00+23:59", 202), ("run_at", "2001-01-01T00:00:00.123456789+02:00", 202),
    ("ttl", 0, 422), ("ttl", -1, 422), ("ttl", 1e-9, 202), ("ttl", "250ms", 202), ("ttl", "6h", 202),
    ("ttl", 1e12, 422), ("ttl", "1e300h", 422), ("ttl", True, 422), ("ttl", "", 422), ("ttl", [], 422),
    ("ttl", "NaN", 422), ("ttl", "5 parsecs", 422),
    ("deadline", 0, 422), ("deadline", -5, 422), ("deadline", "5m", 202), ("deadline", 60, 202),
    ("deadline", "2001-01-01T00:00:00Z", 422), ("deadline", "9999-01-01T00:00:00Z", 422),
    ("deadline", "2001-01-01T00:00:00", 422), ("deadline", "-", 422), ("deadline", 1e12, 422),
    ("attempts_max", 0, 422), ("attempts_max", -1, 422), ("attempts_max", 1, 202), ("attempts_max", 1000, 202),
    ("attempts_max", 1001, 422), ("attempts_max", 10**9, 422), ("attempts_max", None, 202),
    ("attempts_max", "inf", 422), ("attempts_max", 1.0, 422), ("attempts_max", True, 422),
    ("metadata", {"a": 1, "b": "x", "c": None, "d": True, "e": 1.5}, 202), ("metadata", {}, 202),
    ("metadata", None, 202), ("metadata", {"status": "COMPLETED"}, 202), ("metadata", {"a": {"b": 1}}, 422),
    ("metadata", {"a": []}, 422), ("metadata", {f"k{i}": 1 for i in range(65)}, 422),
    ("metadata", {f"k{i}": 1 for i in range(64)}, 202), ("metadata", {"a": "x" * 9000}, 413),
    ("metadata", {"": 1}, 422), ("metadata", {"a b": 1}, 422), ("metadata", {"é": 1}, 422),
    ("metadata", {"k" * 65: 1}, 422), ("metadata", "x", 422), ("metadata", [], 422),
    ("idempotency_key", "", 422), ("idempotency_key", "k" * 255, 202), ("idempotency_key", "k" * 256, 422),
    ("idempotency_key", "é", 422), ("idempotency_key", "a b", 422), ("idempotency_key", "a:/?#%", 202),
    ("idempotency_key", 5, 422),
]  # fmt: skip


@pytest.mark.parametrize(
    ("option", "value", "status"), OPTIONS, ids=[f"{o}={v!r:.40}" for o, v, _ in OPTIONS]
)
def test_an_option_is_taken_or_refused_by_name_alike_on_both_ways(option, value, status):
    async def run(caller):
        line = {"task": "echo", "payload": 1, option: value}
        single = await caller.raw(json.dumps(line).encode())
        if option == "idempotency_key" and status == 202:
            line["payload"] = 1
        _, (verdict,) = await caller.bulk(line)
        assert (single.status_code, verdict["status"]) == (status, status), single.text
        if status in (413, 422):
            assert option in single.json()["detail"]
            assert await caller.depth() == 0

    call(run)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "application/json"}, 202),
        ({"content-type": "application/JSON;charset=UTF-8"}, 202),
        ({"content-type": "application/json; charset=utf-16"}, 415),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({"content-type": ""}, 415),
        ({}, 415),
        ({"content-type": "application/json", "content-encoding": "gzip"}, 415),
        ({"content-type": "application/json", "content-encoding": "br, zstd"}, 415),
        ({"content-type": "application/json", "content-encoding": "identity"}, 202),
        ({"content-type": "application/json", "expect": "x"}, 417),
        ({"content-type": "application/json", "origin": "http://evil.example"}, 403),
        ({"content-type": "application/json", "origin": "null"}, 403),
        ({"content-type": "application/json", "origin": "http://127.0.0.1:8080"}, 202),
        ({"content-type": "application/json", "sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "application/json", "host": "evil.example"}, 421),
        ({"content-type": "application/json", "host": ""}, 400),
        ({"content-type": "application/json", "host": "a b"}, 400),
        ({"content-type": "application/json", "host": "localhost:99"}, 202),
        ({"content-type": "application/json", "host": "[::1]:8080"}, 202),
        (
            {"content-type": "application/json", "x-forwarded-for": "1.2.3.4", "x-forwarded-proto": "https"},
            202,
        ),
        ({"content-type": "application/json", "idempotency-key": "k" * 10_000}, 422),
        ({"content-type": "application/json", "idempotency-key": ""}, 422),
        ({"content-type": "application/json", "x": "y" * 40_000}, 431),
        ({"content-type": "application/json"} | {f"x-{i}": "1" for i in range(101)}, 431),
    ],
)
def test_headers_decide_before_the_body(headers, status):
    async def run(caller):
        answer = await caller.post("/v1/jobs", content=b'{"task":"echo","payload":1}', headers=headers)
        assert answer.status_code == status, answer.text
        assert (await caller.depth()) == (1 if status == 202 else 0)
        if status == 202:
            assert answer.headers["location"].startswith("/v1/jobs/")

    call(run)


def test_a_header_that_decides_may_not_be_sent_twice():
    async def run(caller):
        headers = [("content-type", "application/json"), ("content-type", "text/plain")]
        answer = await caller.post("/v1/jobs", content=b'{"task":"echo","payload":1}', headers=headers)
        assert answer.status_code == 400

    call(run)


@pytest.mark.parametrize(("extra", "status"), [(-1, 202), (0, 202), (1, 413)])
def test_the_limit_of_a_body_counts_bytes_of_utf8(extra, status):
    limit = 4096
    frame = len(b'{"task":"echo","payload":""}')
    fill = limit - frame + extra
    text = "𝄞" * (fill // 4) + "x" * (fill % 4)
    body = b'{"task":"echo","payload":"' + text.encode() + b'"}'

    async def run(caller):
        answer = await caller.raw(body)
        assert answer.status_code == status
        _, (verdict,) = await caller.bulk(body)
        assert verdict["status"] == status
        if status == 413:
            assert answer.json()["limit"] == verdict["limit"] == limit

    call(run, body_bytes_max=limit)


def test_one_way_in_does_not_name_a_task_twice():
    async def run(caller):
        answer = await caller.post("/v1/jobs?task=echo", json={"task": "echo", "payload": 1})
        assert answer.status_code == 422

    call(run)
