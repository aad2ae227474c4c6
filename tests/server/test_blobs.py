"""Blobs at the door: whole or not at all, by their owner alone, and never away from a job that names them."""

import asyncio
import base64
import contextlib
import hashlib
import json
import time

import pytest

from forebay.conformance.blob_stores import FOREIGN
from forebay.core.job import Query
from forebay.core.task import TaskSpec
from forebay.server import answer as answering
from forebay.server import blobs as desk
from tests.server.doors import WAIT_MAX_S, Caller, a_front, connected, exchange, finish, serving, status_of

A, B, ROOT = (f"fb_{name}_0123456789abcdefghijklmnopqrstuvwxyz" for name in "abr")
KEYS = json.dumps({
    A: {"tenant": "a", "scopes": ["submit", "read", "cancel"]},
    B: {"tenant": "b", "scopes": ["submit", "read", "cancel"]},
    ROOT: {"tenant": "ops", "scopes": ["admin"]},
})  # fmt: skip


def ask(tmp_path, test, **kwargs):
    async def run():
        async with asyncio.timeout(30), Caller(a_front(blobs=tmp_path / "blobs", **kwargs)) as caller:
            await test(caller, caller.front)

    asyncio.run(run())


@contextlib.asynccontextmanager
async def served(tmp_path):
    """A real server with blobs; yields its front and its port."""
    front = a_front(blobs=tmp_path / "blobs")
    async with serving(front) as (port, _):
        yield front, port
    await front.blobs.close()


def files(tmp_path):
    return sorted(path.name for path in (tmp_path / "blobs").rglob("*") if path.is_file())


def test_what_is_put_is_told_and_got_back(tmp_path):
    async def test(caller, front):
        data = bytes(range(256)) * 20_000
        answer = await caller.put("/v1/blobs", content=data, headers={"content-type": "audio/wav"})
        view = answer.json()
        digest = hashlib.sha256(data).hexdigest()
        assert (view["size"], view["sha256"], view["media_type"]) == (len(data), digest, "audio/wav")
        assert answer.headers["location"] == f"/v1/blobs/{view['id']}"
        got = await caller.get(answer.headers["location"])
        assert got.content == data
        assert got.headers["content-type"] == "audio/wav"
        assert got.headers["etag"] == f'"{digest}"'
        # Nothing that somebody stored is run by a browser.
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["content-disposition"] == "attachment"
        assert "sandbox" in got.headers["content-security-policy"]
        head = await caller.head(answer.headers["location"])
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(data))
        same = await caller.get(answer.headers["location"], headers={"if-none-match": got.headers["etag"]})
        assert (same.status_code, same.content) == (304, b"")
        assert front.blobs.bytes_in == len(data) == front.blobs.bytes_out

    ask(tmp_path, test)


@pytest.mark.parametrize(
    "header,status,data",
    [
        ("bytes=0-0", 206, b"0"),
        ("bytes=3-5", 206, b"345"),
        ("bytes=7-", 206, b"789"),
        ("bytes=-2", 206, b"89"),
        ("bytes=5-999999999999999999", 206, b"56789"),
        ("bytes=10-", 416, None),
        ("bytes=-0", 416, None),
        *((odd, 200, b"0123456789") for odd in ("bytes=5-3", "bytes=0-1,4-5", "lines=1-2", "bytes=-", "x")),
    ],
)
def test_ranges(header, status, data, tmp_path):
    async def test(caller, _):
        blob = await caller.put_blob(b"0123456789")
        answer = await caller.get(f"/v1/blobs/{blob}", headers={"range": header})
        assert answer.status_code == status
        if data is None:
            assert answer.json()["limit"] == 10
            return
        assert answer.content == data
        stale = await caller.get(f"/v1/blobs/{blob}", headers={"range": header, "if-range": '"other"'})
        assert (stale.status_code, stale.content) == (200, b"0123456789")

    ask(tmp_path, test)


@pytest.mark.parametrize("blob_id", [one for one in FOREIGN if one and one != "." and one.isprintable()])
@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
def test_what_is_no_id_is_not_found_and_leads_nowhere(method, blob_id, tmp_path):
    async def test(caller, _):
        from urllib.parse import quote

        for address in (f"/v1/blobs/{quote(blob_id, safe='')}", f"/v1/blobs/{quote(blob_id)}"):
            answer = await caller.request(method, address)
            assert answer.status_code in {404, 414}, (address, answer.status_code)

    ask(tmp_path, test)


def test_digests_are_held_to(tmp_path):
    async def test(caller, _):
        good = base64.b64encode(hashlib.sha256(b"hello").digest()).decode()
        long = base64.b64encode(hashlib.sha512(b"hello").digest()).decode()
        for name in ("content-digest", "repr-digest"):
            for value in (
                f"sha-256=:{good}:",
                f"sha-512=:{long}:",
                f"sha-256=:{good}:, sha-512=:{long}:",
                "md5=:eA==:",
            ):
                assert (await caller.put("/v1/blobs", content=b"hello", headers={name: value})).is_success
            kept = files(tmp_path)
            for value in (f"sha-256=:{good}:", f"sha-512=:{long}:"):
                answer = await caller.put("/v1/blobs", content=b"hullo", headers={name: value})
                assert (answer.status_code, answer.json()["code"]) == (400, "digest_mismatch")
            for value in ("sha-256=abc", "x", "sha-256=:eA==:", f"sha-256=:{good[:-1]}!:"):
                answer = await caller.put("/v1/blobs", content=b"hello", headers={name: value})
                assert (answer.status_code, answer.json()["code"]) == (400, "malformed"), value
            assert files(tmp_path) == kept

    ask(tmp_path, test)


@pytest.mark.parametrize(
    "headers,status",
    [
        ({"content-encoding": "gzip"}, 415),
        ({"content-encoding": "zstd, br"}, 415),
        ({"content-type": "text/html\x01"}, 415),
        ({"content-type": "nonsense"}, 415),
        ({"content-type": "a/b; " + "x" * 200}, 415),
        ({"content-length": "99999999999999999"}, 413),
    ],
)
def test_odd_uploads_are_refused_before_anything_is_read(headers, status, tmp_path):
    async def test(caller, _):
        answer = await caller.put("/v1/blobs", content=b"\x1f\x8b" * 10, headers=headers)
        assert answer.status_code == status, answer.text
        assert files(tmp_path) == []

    ask(tmp_path, test)


def test_an_upload_that_grows_past_the_limit_is_cut_off_and_leaves_nothing(tmp_path):
    async def endless():
        for _ in range(1_000):
            yield b"x" * 1_000

    async def test(caller, _):
        answer = await caller.put("/v1/blobs", content=endless())
        assert (answer.status_code, answer.json()["limit"]) == (413, 5_000)
        assert "blob_bytes_max" in answer.json()["detail"]
        assert files(tmp_path) == []

    ask(tmp_path, test, blob_bytes_max=5_000)


def test_a_full_disk_is_507_and_leaves_nothing(tmp_path):
    async def test(caller, _):
        answer = await caller.put("/v1/blobs", content=b"x")
        assert (answer.status_code, answer.json()["code"]) == (507, "store_full")
        assert "retry-after" in answer.headers
        assert files(tmp_path) == []

    ask(tmp_path, test, reserve_b=1 << 60)


def test_no_more_uploads_at_once_than_there_may_be(tmp_path, monkeypatch):
    monkeypatch.setattr(desk, "UPLOADS_MAX", 0)

    async def test(caller, _):
        answer = await caller.put("/v1/blobs", content=b"x")
        assert (answer.status_code, answer.json()["limit"]) == (429, 0)

    ask(tmp_path, test)


HEAD = b"PUT /v1/blobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"


async def until(condition):
    async with asyncio.timeout(WAIT_MAX_S):
        while not condition():
            await asyncio.sleep(0.01)  # noqa: TID251 - a real socket's other end


def test_a_client_that_hangs_up_half_way_leaves_nothing(tmp_path):
    async def run():
        async with served(tmp_path) as (front, port):
            _, writer = await connected(port)
            writer.write(HEAD % 4_000_000 + b"x" * 2_500_000)
            await until(lambda: front.blobs.bytes_in > 1_000_000)
            assert files(tmp_path), "nothing was on its way: the test is void"
            writer.close()
            await until(lambda: not files(tmp_path))
            await until(lambda: not front.blobs._claims)

    asyncio.run(run())


def test_a_slow_body_is_cut_off_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(answering, "BODY_TIMEOUT_S", 0.2)
    monkeypatch.setattr(desk, "BODY_TIMEOUT_S", 0.2)

    async def run():
        async with served(tmp_path) as (front, port):
            assert status_of(await exchange(port, HEAD % 10 + b"x")) == 408
            # A byte now and then keeps no connection either.
            reader, writer = await connected(port)
            writer.write(HEAD % 10_000)
            began = time.monotonic()  # noqa: TID251
            while not reader._buffer and time.monotonic() - began < WAIT_MAX_S:  # noqa: TID251
                writer.write(b"x")
                await asyncio.sleep(0.05)  # noqa: TID251
            assert b" 408 " in await reader.read(100)
            writer.close()
            assert files(tmp_path) == []

    asyncio.run(run())


# References in payloads


def test_a_payload_names_only_blobs_that_are_there(tmp_path):
    async def test(caller, front):
        blob = await caller.put_blob()
        good = await caller.submit(payload={"a": [1, {"b": {"$blob": blob}}]})
        assert good.status_code == 202, good.text
        for value, rule in ((blob[:-1] + "x", "must name a blob"), ("0" * 56, "names no blob"), (5, "not 5")):
            answer = await caller.submit(payload={"a": [1, {"b": {"$blob": value}}]})
            assert answer.status_code == 422
            (error,) = answer.json()["errors"]
            assert error["path"] == "payload.a.1.b" and rule in error["rule"]
        plain = await caller.submit(payload={"$blob": "x", "and": "more"})
        assert plain.status_code == 202, "an object with other members is data"
        assert len((await front.broker.find(Query(), now=front.clock.now())).records) == 2
        assert not front.blobs._claims

    ask(tmp_path, test)


def test_a_reference_hidden_by_escapes_is_refused(tmp_path):
    async def test(caller, _):
        blob = await caller.put_blob()
        body = b'{"task":"echo","payload":{"\\u0024blob":"%b"}}' % blob.encode()
        answer = await caller.raw(body)
        assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "payload"), answer.text

    ask(tmp_path, test)


def test_lines_stand_alone(tmp_path):
    async def test(caller, front):
        blob = await caller.put_blob()
        line = lambda value: {"task": "echo", "payload": {"a": {"$blob": value}}}
        _, verdicts = await caller.bulk(
            line(blob), line("0" * 56), {"task": "echo", "payload": 1}, line(blob)
        )
        assert [one["status"] for one in verdicts] == [202, 422, 202, 202]
        assert verdicts[1]["errors"][0]["path"] == "payload.a"
        assert not front.blobs._claims

    ask(tmp_path, test)


def test_a_payload_in_a_blob_as_a_whole_is_not_held_to_the_schema_here(tmp_path):
    async def test(caller, _):
        text = json.dumps({"url": "x"}).encode()
        small = await caller.put_blob(text, content_type="application/json")
        assert (await caller.submit("Clip", {"$blob": small})).status_code == 202
        assert (await caller.submit("Clip", {"url": {"$blob": small}})).status_code == 422
        large = await caller.put_blob(b"[" + b" " * 5_000 + b"]", content_type="application/json")
        answer = await caller.submit("Clip", {"$blob": large})
        assert (answer.status_code, answer.json()["limit"]) == (413, 4_096)
        assert (await caller.submit("Sound", {"$blob": large})).status_code == 202, "it takes a Blob"

    tasks = {
        "Clip": TaskSpec(
            name="Clip", input_schema={"type": "object", "properties": {"url": {"type": "string"}}}
        ),
        "Sound": TaskSpec(name="Sound", input_schema={"x-forebay-blob": True, "type": "object"}),
    }
    ask(tmp_path, test, tasks=tasks, payload_bytes_max=4_096)


def test_a_result_in_a_blob_is_bytes_with_their_type(tmp_path):
    async def test(caller, front):
        blob = await caller.put_blob(b"RIFF", content_type="audio/wav")
        job = await caller.one()
        await finish(front, output=b'{"$blob":"%b"}' % blob.encode())
        answer = await caller.get(job["links"]["result"])
        assert (answer.content, answer.headers["content-type"]) == (b"RIFF", "audio/wav")
        assert (await caller.get(job["links"]["self"])).json()["result"] == {"$blob": blob}
        part = await caller.get(job["links"]["result"], headers={"range": "bytes=1-2"})
        assert (part.status_code, part.content) == (206, b"IF")
        await front.blobs.erase(blob)
        gone = await caller.get(job["links"]["result"])
        assert (gone.status_code, gone.json()["code"]) == (410, "claim_check_corrupt")

    ask(tmp_path, test)


def test_a_blob_of_another_tenant_does_not_exist(tmp_path):
    async def test(caller, front):
        as_a, as_b, as_root = ({"authorization": f"Bearer {key}"} for key in (A, B, ROOT))
        blob = await caller.put_blob(b"of a", **as_a)
        for headers, status in ((as_a, 200), (as_b, 404), (as_root, 200), ({}, 401)):
            assert (await caller.get(f"/v1/blobs/{blob}", headers=headers)).status_code == status
        for method in ("HEAD", "DELETE"):
            assert (await caller.request(method, f"/v1/blobs/{blob}?force=1", headers=as_b)).status_code in {
                404,
                422,
            }
        unknown = await caller.submit(payload={"$blob": "0" * 56}, headers=as_b)
        theirs = await caller.submit(payload={"$blob": blob}, headers=as_b)
        assert theirs.status_code == unknown.status_code == 422
        assert theirs.content == unknown.content, "an answer tells the blob of another from none"
        assert (await caller.submit(payload={"$blob": blob}, headers=as_a)).status_code == 202
        assert (await caller.delete(f"/v1/blobs/{blob}", headers=as_b)).status_code == 404
        assert front.blobs.removed == 0

    ask(tmp_path, test, keys=KEYS)


# Lifetime


def test_a_sweep_takes_what_no_job_names_and_nothing_else(tmp_path):
    async def test(caller, front):
        lost, used, result = [await caller.put_blob(data) for data in (b"lost", b"used", b"result")]
        job = await caller.one(payload={"a": {"$blob": used}})
        await finish(front, output=b'[{"$blob":"%b"}]' % result.encode())
        front.blobs.grace_s = 0.0
        assert await front.blobs.sweep() == 1
        statuses = [(await caller.get(f"/v1/blobs/{one}")).status_code for one in (lost, used, result)]
        assert statuses == [404, 200, 200]
        await front.broker.purge([job["job_id"]], limit=1, now=front.clock.now())
        assert await front.blobs.sweep() == 2
        assert files(tmp_path) == []

    ask(tmp_path, test)


def test_within_its_grace_a_blob_stays(tmp_path):
    async def test(caller, front):
        blob = await caller.put_blob()
        assert await front.blobs.sweep() == 0
        assert (await caller.get(f"/v1/blobs/{blob}")).is_success

    ask(tmp_path, test)


def test_a_submission_and_a_sweep_that_meet_never_leave_a_job_without_its_blob(tmp_path):
    """The sweep looks whether a job names the blob, and while it waits for the answer a submission comes."""

    async def test(caller, front):
        front.blobs.grace_s = 0.0
        looked, go_on = asyncio.Event(), asyncio.Event()
        held = front.blobs._held

        async def slow_held(ids):
            answer = await held(ids)
            looked.set()
            await go_on.wait()
            return answer

        front.blobs._held = slow_held
        blob = await caller.put_blob()
        sweep = asyncio.ensure_future(front.blobs.sweep())
        await looked.wait()
        submission = asyncio.ensure_future(caller.submit(payload={"a": {"$blob": blob}}))
        done, _ = await asyncio.wait({submission}, timeout=0.2)
        assert not done, "a claim of a doomed blob waits for the sweep"
        go_on.set()
        assert await sweep == 1
        assert (await submission).status_code == 422
        assert (await front.broker.depth("echo", now=front.clock.now())).queued == 0

    ask(tmp_path, test)


def test_what_is_claimed_is_not_swept(tmp_path):
    async def test(caller, front):
        front.blobs.grace_s = 0.0
        blob = await caller.put_blob()
        assert await front.blobs.claim(blob, "")
        assert await front.blobs.sweep() == 0
        front.blobs.release((blob,))
        assert await front.blobs.sweep() == 1

    ask(tmp_path, test)


def test_a_blob_is_erased_but_for_one_that_a_job_names_unless_forced(tmp_path):
    async def test(caller, front):
        free, used = await caller.put_blob(), await caller.put_blob()
        await caller.one(payload=[{"$blob": used}])
        assert (await caller.delete(f"/v1/blobs/{free}")).json() == {"id": free, "erased": True}
        assert (await caller.delete(f"/v1/blobs/{free}")).status_code == 404
        assert (await caller.delete(f"/v1/blobs/{used}")).status_code == 409
        assert (await caller.delete(f"/v1/blobs/{used}?force=1")).status_code == 200
        assert files(tmp_path) == []

    ask(tmp_path, test)


def test_what_nobody_is_there_to_take_is_not_read(tmp_path):
    """A server takes what is sent to a client that has gone, and drops it: the disk would be read for nobody,
    as often as somebody asks and goes."""

    async def run():
        async with asyncio.timeout(WAIT_MAX_S), served(tmp_path) as (front, port):
            size = 64 << 20
            head = b"PUT /v1/blobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            stored = await exchange(port, head % size, bytes(size))
            blob_id = json.loads(stored.partition(b"\r\n\r\n")[2])["id"]
            reader, writer = await connected(port, limit=1024)
            writer.write(f"GET /v1/blobs/{blob_id} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert status_of(await reader.readuntil(b"\r\n\r\n")) == 200
            writer.transport.abort()
            while front.blobs._claims:
                await asyncio.sleep(0.002)
            assert front.blobs.bytes_out < size

    asyncio.run(run())
