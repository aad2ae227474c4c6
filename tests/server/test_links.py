"""Signed links: they open one result or one blob for a time, without a key, and nothing else."""

import asyncio
import hashlib
import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest

from forebay.core.job import JobRecord
from forebay.server.links import Links
from forebay.server.render import webhook_json
from tests.server.doors import Caller, a_front, finish

A, B = (f"fb_{name}_0123456789abcdefghijklmnopqrstuvwxyz" for name in "ab")
KEYS = json.dumps(
    {key: {"tenant": name, "scopes": ["submit", "read", "cancel"]} for key, name in ((A, "a"), (B, "b"))}
)
UNKNOWN = "0190a000-0000-7000-8000-00000000dead"
OLD, NEW = b"o" * 32, b"n" * 32
T0 = 1_800_000_000.0


class Clock:
    def __init__(self):
        self.at = T0

    def now(self):
        return self.at

    def random(self):
        return 0.5

    async def sleep(self, seconds):
        await asyncio.sleep(0)


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def call(test, tmp_path, **settings):
    async def run():
        front = a_front(keys=KEYS, clock=Clock(), blobs=tmp_path / "blobs", **settings)
        async with asyncio.timeout(30), Caller(front) as caller:
            await test(caller)

    asyncio.run(run())


async def a_result(caller, output=b'{"x":1}'):
    """A finished job of tenant a; returns its id."""
    answer = await caller.submit(headers=bearer(A))
    assert answer.status_code == 202
    await finish(caller.front, output=output)
    return answer.json()["job_id"]


async def linked(caller, path, key=A, **ask):
    answer = await caller.post(path + "/link", json=ask, headers=bearer(key))
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_link_opens_a_result_without_a_key_until_its_time_is_over(tmp_path):
    async def test(caller):
        job_id = await a_result(caller)
        link = await linked(caller, f"/v1/jobs/{job_id}/result", ttl="10m")
        assert link["expires_at"] == "2027-01-15T08:10:00.000000Z" and link["by"] == "server"
        assert (await caller.get(f"/v1/jobs/{job_id}/result")).status_code == 401
        opened = await caller.get(link["url"])
        assert (opened.status_code, opened.json()) == (200, {"x": 1})
        assert (await caller.head(link["url"])).status_code == 200
        caller.front.clock.at = T0 + 599.9
        assert (await caller.get(link["url"])).status_code == 200
        caller.front.clock.at = T0 + 600
        late = await caller.get(link["url"])
        assert (late.status_code, late.json()["code"]) == (403, "bad_link")
        assert late.json()["detail"] == "the link has expired: ask for a new one"

    call(test, tmp_path)


def test_a_link_opens_a_blob_with_ranges_and_etag(tmp_path):
    async def test(caller):
        blob = await caller.put_blob(b"hello world", **bearer(A))
        url = (await linked(caller, f"/v1/blobs/{blob}"))["url"]
        assert (await caller.get(url)).content == b"hello world"
        part = await caller.get(url, headers={"range": "bytes=0-4"})
        assert (part.status_code, part.content) == (206, b"hello")
        etag = part.headers["etag"]
        assert (await caller.get(url, headers={"if-none-match": etag})).status_code == 304
        assert part.headers["content-disposition"] == "attachment"

    call(test, tmp_path)


def test_a_link_opens_that_one_thing_and_only_to_read(tmp_path):
    async def test(caller):
        one, other = await a_result(caller), await a_result(caller)
        blob = await caller.put_blob(**bearer(A))
        url = (await linked(caller, f"/v1/jobs/{one}/result"))["url"]
        query = url.partition("?")[2]
        for path in (
            f"/v1/jobs/{other}/result", f"/v1/jobs/{one}", f"/v1/jobs/{one}/events", "/v1/jobs", f"/v1/blobs/{blob}",
            f"/v1/jobs/{one}/result/", f"/v1/jobs/{one}//result", "/v1/crons", "/metrics",
        ):  # fmt: skip
            answer = await caller.get(f"{path}?{query}")
            assert answer.status_code in {401, 403}, (path, answer.text)
        for method in ("DELETE", "POST", "PATCH", "PUT"):
            answer = await caller.request(method, url)
            assert answer.status_code in {401, 403, 405}, (method, answer.text)
        blob_query = (await linked(caller, f"/v1/blobs/{blob}"))["url"].partition("?")[2]
        assert (await caller.delete(f"/v1/blobs/{blob}?{blob_query}")).status_code == 401
        assert (await caller.get(f"/v1/blobs/{blob}", headers=bearer(A))).status_code == 200

    call(test, tmp_path)


def altered(url):
    path, _, query = url.partition("?")
    expires, sig = (parse_qs(query)[name][0] for name in ("expires", "sig"))
    later = str(int(expires) + 1)
    return [
        f"{path}?expires={later}&sig={sig}",
        f"{path}?expires={expires}&sig={sig[:-1]}",
        f"{path}?expires={expires}&sig={sig}A",
        f"{path}?expires={expires}&sig={'A' * 43}",
        f"{path}?expires={expires}&sig=",
        f"{path}?sig={sig}",
        f"{path}?expires=&sig={sig}",
        f"{path}?expires=0{expires}&sig={sig}",
        f"{path}?expires=+{expires}&sig={sig}",
        f"{path}?expires={expires}&sig={sig.swapcase()}",
        f"{path}?expires={expires}&sig=%F0%9F%A6%8A",
        f"{path}?expires=9e99&sig={sig}",
    ]


def test_whatever_is_changed_is_refused_with_the_same_line(tmp_path):
    async def test(caller):
        job_id = await a_result(caller)
        for url in altered((await linked(caller, f"/v1/jobs/{job_id}/result"))["url"]):
            answer = await caller.get(url)
            assert (answer.status_code, answer.json()["code"]) == (403, "bad_link"), url
            assert answer.json()["detail"] == "the link is not valid: it must be used as it was given out", (
                url
            )

    call(test, tmp_path)


def test_a_bad_link_tells_nothing_of_what_there_is(tmp_path):
    async def test(caller):
        job_id = await a_result(caller)
        blob = await caller.put_blob(**bearer(A))
        texts = set()
        for path in (
            f"/v1/jobs/{job_id}/result",
            f"/v1/jobs/{UNKNOWN}/result",
            f"/v1/blobs/{blob}",
            f"/v1/blobs/{'0' * 56}",
        ):
            answer = await caller.get(f"{path}?expires=1900000000&sig={'A' * 43}")
            texts.add((answer.status_code, answer.text))
        assert len(texts) == 1

    call(test, tmp_path)


def test_links_are_made_for_what_the_caller_may_read(tmp_path):
    async def test(caller):
        job_id, blob = await a_result(caller), await caller.put_blob(**bearer(A))
        for path in (
            f"/v1/jobs/{job_id}/result",
            f"/v1/jobs/{UNKNOWN}/result",
            f"/v1/blobs/{blob}",
            "/v1/blobs/x",
        ):
            answer = await caller.post(path + "/link", json={}, headers=bearer(B))
            assert answer.status_code == 404, answer.text
        assert (await caller.post(f"/v1/blobs/{blob}/link", json={})).status_code == 401

    call(test, tmp_path)


@pytest.mark.parametrize("ttl", [0, -1, 0.5, "8d", 604_801, "soon", "1h30m", True, [], "NaN"])
def test_a_wrong_time_is_one_line(ttl, tmp_path):
    async def test(caller):
        job_id = await a_result(caller)
        answer = await caller.post(f"/v1/jobs/{job_id}/result/link", json={"ttl": ttl}, headers=bearer(A))
        assert answer.status_code == 422, answer.text
        assert "\n" not in answer.json()["detail"]

    call(test, tmp_path)


def test_a_link_may_be_given_out_before_there_is_a_result_and_ends_with_the_job(tmp_path):
    async def test(caller):
        job_id = (await caller.submit(headers=bearer(A))).json()["job_id"]
        url = (await linked(caller, f"/v1/jobs/{job_id}/result"))["url"]
        early = await caller.get(url)
        assert (early.status_code, early.json()["code"]) == (409, "not_finished")
        await finish(caller.front)
        assert (await caller.get(url)).json() == "done"
        await caller.front.broker.purge([job_id], limit=1, now=caller.front.clock.at)
        assert (await caller.get(url)).status_code == 410

    call(test, tmp_path)


def test_a_finished_job_carries_a_link_where_the_settings_ask_for_it(tmp_path):
    async def test(caller):
        front = caller.front
        job_id = await a_result(caller)
        assert "download" not in (await caller.get(f"/v1/jobs/{job_id}", headers=bearer(A))).json()["links"]
        front.links = Links((NEW,), job_ttl_s=60.0)
        caller.door._shower._front = front
        shown = (await caller.get(f"/v1/jobs/{job_id}", headers=bearer(A))).json()
        assert (await caller.get(shown["links"]["download"])).json() == {"x": 1}
        record = await front.broker.get(job_id, now=T0)
        assert isinstance(record, JobRecord)
        told = json.loads(webhook_json(record, now=T0, links=front.links))
        assert (await caller.get(told["links"]["download"])).json() == {"x": 1}
        waiting = (await caller.submit(headers=bearer(A))).json()
        assert "download" not in waiting["links"]

    call(test, tmp_path)


def test_a_secret_is_rotated_without_breaking_what_was_given_out():
    path, before = "/v1/blobs/x", Links((OLD,))
    url = before.made(path, expires_at=T0 + 60)
    asked = {"method": "GET", "path": path, "query_string": urlsplit(url).query.encode()}
    both, new = Links((NEW, OLD)), Links((NEW,))
    assert both.opened(asked, now=T0)["query_string"] == b""
    fresh = both.made(path, expires_at=T0 + 60)
    assert fresh == new.made(path, expires_at=T0 + 60) != url
    with pytest.raises(Exception, match="the link is not valid"):
        new.opened(asked, now=T0)


def test_a_signature_is_that_of_the_documents():
    import base64
    import hmac

    url = Links((NEW,)).made("/v1/blobs/x", expires_at=T0)
    digest = hmac.digest(NEW, b"forebay link v1\n/v1/blobs/x\n1800000000", hashlib.sha256)
    assert (
        url == f"/v1/blobs/x?expires=1800000000&sig={base64.urlsafe_b64encode(digest).decode().rstrip('=')}"
    )


def test_no_part_of_a_signature_is_logged(tmp_path):
    async def test(caller):
        job_id = await a_result(caller)
        url = (await linked(caller, f"/v1/jobs/{job_id}/result"))["url"]
        sig = re.search("sig=(.*)", url)[1]

        async def broken(*args, **options):
            raise RuntimeError(url)

        caller.front.broker.get = broken
        assert (await caller.get(url)).status_code == 500
        await caller.get(url + "x")
        assert caller.front.log.lines and sig[:12] not in repr(caller.front.log.lines)

    call(test, tmp_path)


def test_without_keys_a_bad_link_is_refused_too(tmp_path):
    async def run():
        async with Caller(a_front(blobs=tmp_path / "blobs")) as caller:
            blob = await caller.put_blob()
            url = (await caller.post(f"/v1/blobs/{blob}/link", json={})).json()["url"]
            assert (await caller.get(url)).status_code == 200
            assert (await caller.get(url + "x")).status_code == 403
            assert (await caller.get(f"/v1/blobs/{blob}")).status_code == 200

    asyncio.run(run())


@pytest.mark.parametrize("by", ["store", "server"])
def test_a_blob_in_an_object_store_is_linked_there_unless_the_settings_say_otherwise(by, tmp_path):
    async def test(caller):
        blob = await caller.put_blob(**bearer(A))
        caller.front.blobs.store.link = lambda blob_id, ttl_s: f"https://cloud/{blob_id}?for={ttl_s:g}"
        link = await linked(caller, f"/v1/blobs/{blob}", ttl=60)
        there = f"https://cloud/{blob}?for=60"
        assert (link["by"], link["url"] == there) == (by, by == "store")
        assert link["expires_at"] == "2027-01-15T08:01:00.000000Z"

    call(test, tmp_path, links_by=by)
