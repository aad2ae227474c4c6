"""Blobs in a real child: followed when the payload names them, held to their digest, stored when returned."""

import hashlib
import http.server
import json
import os
import threading

import pytest

from forebay.blobs.local import LocalBlobs
from forebay.conformance.blob_stores import stored
from forebay.core.blobs import BlobTerms, belongs, named, new_id
from forebay.node.frames import RunItem
from tests.blobs.stores import an_s3, on_s3, put_object
from tests.child.harness import run_all

APP = """
from dataclasses import dataclass
import dataclasses, json
from typing import Any
import msgspec, pydantic

@dataclass
class Clip:
    audio: forebay.Blob
    gain: float = 1.0

class Model(pydantic.BaseModel):
    audio: forebay.Blob

class Out(msgspec.Struct):
    audio: forebay.Blob
    size: int

@app.task()
def size(blob: forebay.Blob) -> dict[str, Any]:
    return {"size": blob.size, "sha256": blob.sha256, "kind": blob.media_type, "text": blob.read().decode(),
            "file": blob.path.read_bytes().decode(), "open": blob.open().read().decode()}

@app.task()
def clip(one: Clip) -> Out:
    return Out(forebay.Blob.of(one.audio.read().upper(), "audio/wav"), one.audio.size)

@app.task()
def model(one: Model) -> Model:
    return Model(audio=one.audio)

@app.task()
def words(text: list[str]) -> int:
    return len(text)

@app.task()
def anything(payload):
    return {"read": payload["a"][0].read().decode(), "back": payload["a"]}

@app.task()
def raw(n: int) -> bytes:
    return b"x" * n

@app.task()
def inside(n: int):
    return {"a": [b"x" * n, bytearray(b"y")], "b": 1}

@app.task()
def large(n: int) -> list[int]:
    return list(range(n))

@app.task()
def file(text: str) -> forebay.Blob:
    with open("made.txt", "w") as out:
        out.write(text)
    return forebay.Blob.of("made.txt")
"""


def reference(blob_id):
    return {"$blob": blob_id}


def terms_of(tmp_path, **changes):
    given = {"place": str(tmp_path / "blobs"), "cache": str(tmp_path / "cache")}
    return BlobTerms(**given | changes)


def run(tmp_path, task, *payloads, tenant="", terms=None, **changes):
    """Run payloads and return the node's view of each result."""
    items = [
        RunItem(n, json.dumps(one).encode(), 1, f"j{n}", tenant=tenant) for n, one in enumerate(payloads)
    ]
    seen = run_all(
        tmp_path, APP, task, items, blobs=terms or terms_of(tmp_path), cwd=str(tmp_path), **changes
    )
    return [result for _, result in sorted(seen.results.items())]


def code(result):
    return None if result.error is None else result.error.code


@pytest.fixture
def store(tmp_path):
    return LocalBlobs(str(tmp_path / "blobs"))


def read(store, output):
    (blob_id,) = named(output)
    return store.read(blob_id, 0, 10_000_000), store.head(blob_id).media_type


def test_a_payload_that_is_a_blob(tmp_path, store):
    info = stored(store, b"hello", media_type="text/x")
    (result,) = run(tmp_path, "size", reference(info.id))
    expected = {"size": 5, "sha256": hashlib.sha256(b"hello").hexdigest(), "kind": "text/x"}
    assert json.loads(result.output) == expected | dict.fromkeys(("text", "file", "open"), "hello")


def test_a_field_that_is_a_blob_and_an_output_that_holds_one(tmp_path, store):
    info = stored(store, b"hello")
    (result,) = run(tmp_path, "clip", {"audio": reference(info.id), "gain": 2})
    assert json.loads(result.output)["size"] == 5
    assert read(store, result.output) == (b"HELLO", "audio/wav")


def test_a_field_of_a_pydantic_model(tmp_path, store):
    info = stored(store, b"hello")
    (result,) = run(tmp_path, "model", {"audio": reference(info.id)})
    assert json.loads(result.output) == {"audio": reference(info.id)}, "what came in goes out by its own id"


def test_a_handler_without_types_gets_blobs_in_their_places(tmp_path, store):
    info = stored(store, b"hello")
    (result,) = run(tmp_path, "anything", {"a": [reference(info.id), 1]})
    assert json.loads(result.output) == {"read": "hello", "back": [reference(info.id), 1]}


def test_a_payload_as_a_whole_in_a_blob_is_the_payload(tmp_path, store):
    good = stored(store, b'["a","b"]', 1, media_type="application/json; charset=utf-8")
    wrong = stored(store, b"[1]", 2, media_type="application/json")
    bytes_ = stored(store, b'["a"]', 3, media_type="audio/wav")
    large = stored(store, b"[" + b" " * 2_000 + b"]", 4, media_type="application/json")
    results = run(
        tmp_path,
        "words",
        *(reference(one.id) for one in (good, wrong, bytes_, large)),
        terms=terms_of(tmp_path, payload_bytes_max=1_000),
    )
    assert results[0].output == b"2"
    assert [code(one) for one in results[1:]] == ["invalid_payload", "invalid_payload", "too_large"]
    assert all(one.permanent for one in results[1:])


def test_a_blob_that_is_gone_or_damaged_is_never_run_on(tmp_path, store):
    gone, damaged, cut = (stored(store, b"hello", number) for number in range(3))
    store.delete(gone.id)
    with open(store.path(damaged.id), "r+b") as file:
        file.write(b"j")
    os.truncate(store.path(cut.id), 4)
    results = run(tmp_path, "clip", *({"audio": reference(one.id)} for one in (gone, damaged, cut)))
    assert [code(one) for one in results] == ["claim_check_corrupt"] * 3
    assert all(one.permanent for one in results)


def test_only_what_the_payload_names_in_plain_writing_and_of_its_tenant_is_followed(tmp_path, store):
    mine, theirs = new_id("a", now=1.0, chance=b"1" * 16), new_id("b", now=1.0, chance=b"2" * 16)
    for blob_id in (mine, theirs):
        writer = store.begin(blob_id, "text/plain")
        writer.write(b"x")
        writer.commit()
    results = run(tmp_path, "clip", {"audio": reference(mine)}, {"audio": reference(theirs)}, tenant="a")
    assert [code(one) for one in results] == [None, "reference_refused"]
    (made,) = named(results[0].output)
    assert belongs(made, "a")
    text = b'{"audio":{"\\u0024blob":"%b"}}' % mine.encode()
    seen = run_all(
        tmp_path,
        APP,
        "clip",
        [RunItem(0, text, 1, "j", tenant="a")],
        blobs=terms_of(tmp_path),
        cwd=str(tmp_path),
    )
    assert code(seen.results[0]) == "reference_refused"


@pytest.mark.parametrize("value", ["../x", "", 5, None, [], {"$blob": "../../etc/passwd"}, {"$blob": 1}, {}])
def test_what_is_no_reference_does_not_fit(value, tmp_path, store):
    (result,) = run(tmp_path, "clip", {"audio": value})
    assert code(result) in {"invalid_payload", "reference_refused"}
    assert result.permanent


def test_outputs_that_are_bytes_or_large_are_stored(tmp_path, store):
    (result,) = run(tmp_path, "raw", 1_000)
    assert read(store, result.output) == (b"x" * 1_000, "application/octet-stream")
    (result,) = run(tmp_path, "inside", 3)
    found = json.loads(result.output)
    assert [store.read(one["$blob"], 0, 9) for one in found["a"]] == [b"xxx", b"y"]
    (result,) = run(tmp_path, "large", 1_000, result_bytes_max=1_000)
    text, kind = read(store, result.output)
    assert (json.loads(text), kind) == (list(range(1_000)), "application/json")
    assert result.output.startswith(b'{"$blob":')
    (result,) = run(tmp_path, "file", "hi")
    assert read(store, result.output) == (b"hi", "text/plain")


def test_an_output_that_cannot_be_stored_is_tried_again_and_one_that_is_too_large_is_not(tmp_path, store):
    (result,) = run(tmp_path, "raw", 10, terms=terms_of(tmp_path, reserve_b=1 << 60))
    assert (code(result), result.permanent) == ("result_not_stored", False)
    (result,) = run(tmp_path, "raw", 10, terms=terms_of(tmp_path, bytes_max=9))
    assert (code(result), result.permanent) == ("result_too_large", True)
    assert list(store.ids()) == []


def test_a_store_elsewhere_is_read_through_the_cache_and_written_to(tmp_path):
    with an_s3() as env, on_s3(env) as store:
        info = stored(store, b"hello" * 1_000)
        place = f"s3://blobs/{store._store.prefix}"
        terms = terms_of(tmp_path, place=place)
        (result,) = run(tmp_path, "clip", {"audio": reference(info.id)}, terms=terms)
        assert read(store, result.output)[0] == b"HELLO" * 1_000
        assert [path.name for path in (tmp_path / "cache").iterdir()] == [info.id]
        put_object(env, f"{store._store.prefix}/{info.id[:12]}/{info.id}", b"other" * 1_000)
        (tmp_path / "cache" / info.id).unlink()
        (result,) = run(tmp_path, "clip", {"audio": reference(info.id)}, terms=terms)
        assert code(result) == "claim_check_corrupt"
        put_object(env, "in/clip.txt", b"from s3", "text/x")
        terms = terms._replace(sources=("s3://blobs/",))
        results = run(
            tmp_path, "size", "s3://blobs/in/clip.txt", "s3://blobs/in/none", "s3://other/x", terms=terms
        )
        assert json.loads(results[0].output)["text"] == "from s3"
        assert [code(one) for one in results] == [None, "reference_refused", "reference_refused"]


class Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("location", "/file")
        elif self.path == "/busy":
            self.send_response(503)
        elif self.path == "/short":
            self.send_response(200)
            self.send_header("content-length", "100")
        else:
            self.send_response(200)
            self.send_header("content-type", "audio/wav")
        self.end_headers()
        if self.path == "/file":
            self.wfile.write(b"from a site")
        elif self.path == "/endless":
            try:
                while True:
                    self.wfile.write(b"x" * 1_000)
            except OSError:
                return

    def log_message(self, *_):
        pass


@pytest.fixture
def site():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_references_to_elsewhere_are_followed_where_they_may_and_no_further(tmp_path, site, store):
    listed = terms_of(tmp_path, sources=(f"{site}/",), bytes_max=10_000)
    paths = ("/file", "/moved", "/busy", "/endless", "/short")
    results = run(tmp_path, "size", *(site + path for path in paths), terms=listed)
    told = json.loads(results[0].output)
    assert (told["text"], told["kind"], told["size"]) == ("from a site", "audio/wav", 11)
    assert [code(one) for one in results[1:]] == [
        "reference_refused", "handler_failed", "reference_refused", "handler_failed",
    ]  # fmt: skip
    assert [one.permanent for one in results[1:]] == [True, False, True, False]
    assert list((tmp_path / "cache").iterdir()) == [], "what was fetched goes with its job"
    port = site.rpartition(":")[2]
    private = [
        *(f"https://{host}:{port}/file" for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "2130706433")),
        *(f"https://{host}/" for host in ("10.0.0.1", "169.254.169.254", "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]")),
        *("https://user:pw@example.org/", "https://example.org:0/", site + "/file", "gs://bucket/key"),
    ]  # fmt: skip
    results = run(tmp_path, "size", *private, terms=terms_of(tmp_path, sources=("https://",)))
    assert {code(one) for one in results} == {"reference_refused"}, [one.error for one in results]
