"""Large payloads from the client: what is large is uploaded unasked, and nothing else changes."""

import asyncio
import dataclasses
import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import forebay
from forebay.client import BlobRef
from forebay.client.blobs import PAYLOAD_INLINE_MAX_B
from forebay.core.job import Query
from forebay.errors import InvalidError, NotFoundError, StateConflictError, TooLargeError
from tests.server.doors import a_front, serving

TEST_MAX_S = 200.0
pytestmark = pytest.mark.timeout(240)  # ten starts of the command, one after the other, on any machine


def with_server(tmp_path, test, **settings):
    """Run a blocking test(client, front, payloads) beside a real server; `payloads` reads what was stored."""

    async def run():
        front = a_front(blobs=tmp_path / "blobs", **settings)

        def payloads():
            async def read():
                page = await front.broker.find(Query(), now=front.clock.now())
                return [json.loads(record.job.payload) for record in page.records]

            return asyncio.run_coroutine_threadsafe(read(), loop).result(10)

        loop = asyncio.get_running_loop()
        async with asyncio.timeout(TEST_MAX_S), serving(front) as (port, _):
            with forebay.Client(f"http://127.0.0.1:{port}", retry_for=2) as client:
                await asyncio.to_thread(test, client, front, payloads)
        await front.blobs.close()
        await loop.shutdown_default_executor()

    asyncio.run(run())


def test_bytes_paths_and_files_come_back_as_they_were(tmp_path):
    data = bytes(range(256)) * 10_000
    path = tmp_path / "clip.wav"
    path.write_bytes(data)

    def test(client, _, __):
        by_name = client.put_blob(str(path))
        assert (by_name.size, by_name.media_type) in {(len(data), "audio/wav"), (len(data), "audio/x-wav")}
        with path.open("rb") as file:
            sources = [data, bytearray(data), memoryview(data), path, file, io.BytesIO(data)]
            sources.append(data[at : at + 1000] for at in range(0, len(data), 1000))
            for source in sources:
                ref = client.put_blob(source, "a/b")
                assert (ref.size, ref.sha256, ref.media_type) == (len(data), by_name.sha256, "a/b")
        for name in (ref, ref.id, ref.reference()):
            assert client.get_blob(name) == data
        assert client.get_blob(ref, tmp_path / "out") == b""
        assert (tmp_path / "out").read_bytes() == data

    with_server(tmp_path, test)


@dataclasses.dataclass
class Clip:
    audio: object
    gain: float = 1.0


def test_what_is_not_json_in_a_payload_is_uploaded(tmp_path):
    (tmp_path / "x.bin").write_bytes(b"of a path")

    def test(client, _, payloads):
        ref = client.put_blob(b"once")
        client.submit("echo", {"a": [b"x", (tmp_path / "x.bin",)], "b": io.BytesIO(b"y"), "c": 1, "d": ref})
        client.submit("echo", Clip(b"z"))
        client.submit("echo", b"whole")
        whole, clip, first = payloads()
        assert client.get_blob(whole) == b"whole"
        assert client.get_blob(clip["audio"]) == b"z" and clip["gain"] == 1.0
        assert [client.get_blob(one) for one in (first["a"][0], first["a"][1][0], first["b"])] == [
            b"x", b"of a path", b"y",
        ]  # fmt: skip
        assert (first["c"], first["d"]) == (1, ref.reference())

    with_server(tmp_path, test)


def test_a_large_json_payload_is_uploaded_as_a_whole_and_a_small_one_is_not(tmp_path):
    def test(client, front, payloads):
        client.submit("echo", {"text": "x" * 1_000})
        assert front.blobs.made == 0
        large = {"text": "x" * PAYLOAD_INLINE_MAX_B}
        client.submit("echo", large)
        assert front.blobs.made == 1
        assert json.loads(client.get_blob(payloads()[0])) == large

    with_server(tmp_path, test)


def test_of_many_what_is_large_is_uploaded_too(tmp_path):
    def test(client, front, payloads):
        large = "x" * PAYLOAD_INLINE_MAX_B
        verdicts = client.submit_many("echo", ["small", large, {"sound": b"abc"}])
        assert [verdict.error for verdict in verdicts] == [None] * 3 and front.blobs.made == 2
        mapped = client.map_as_completed("echo", [large, object(), b"abc"])
        assert next(mapped).place == 1  # nobody runs the others
        assert front.blobs.made == 4
        mapped.close()
        stored = payloads()
        assert sum("$blob" in str(payload) for payload in stored) == len(stored) - 1

    with_server(tmp_path, test)


def test_the_same_bytes_under_the_same_key_are_the_same_job(tmp_path):
    def test(client, front, _):
        first, second = (client.submit("echo", {"a": b"same"}, idempotency_key="k") for _ in range(2))
        assert first.job_id == second.job_id
        assert front.blobs.made == 2
        with pytest.raises(forebay.ForebayError, match="key"):
            client.submit("echo", {"a": b"other"}, idempotency_key="k")
        lines = [
            {"task": "echo", "payload": {"a": client.put_blob(b"same").reference()}, "idempotency_key": "k"}
        ]
        import httpx

        answer = httpx.post(
            f"{client.terms.url}/v1/jobs",
            content=json.dumps(lines[0]) + "\n",
            headers={"content-type": "application/x-ndjson"},
        )
        assert json.loads(answer.text)["job_id"] == first.job_id

    with_server(tmp_path, test)


def test_refusals_are_told_and_leave_no_half_file(tmp_path):
    def test(client, _, __):
        with pytest.raises(TooLargeError):
            client.put_blob(b"x" * 5_000)
        with pytest.raises(InvalidError, match="cannot read"):
            client.put_blob(tmp_path / "none")
        with pytest.raises(InvalidError, match="mode 'rb'"):
            client.put_blob(io.StringIO("x"))
        with pytest.raises(InvalidError, match="nothing to upload"):
            client.put_blob(5)
        with pytest.raises(InvalidError, match="named by its id"):
            client.get_blob("../x")
        with pytest.raises(NotFoundError):
            client.get_blob("0" * 56, tmp_path / "out")
        assert not list(tmp_path.glob("out*"))
        ref = client.put_blob(b"x")
        client.submit("echo", ref)
        with pytest.raises(StateConflictError):
            client.erase_blob(ref)
        assert client.erase_blob(ref, force=True)["erased"]

    with_server(tmp_path, test, blob_bytes_max=2_000)


def test_the_awaiting_client_does_the_same(tmp_path):
    async def run():
        front = a_front(blobs=tmp_path / "blobs")
        async with asyncio.timeout(TEST_MAX_S), serving(front) as (port, _):
            async with forebay.AsyncClient(f"http://127.0.0.1:{port}") as client:
                ref = await client.put_blob(b"x" * 3_000_000, "a/b")
                assert isinstance(ref, BlobRef)
                assert await client.get_blob(ref) == b"x" * 3_000_000
                await client.get_blob(ref, tmp_path / "out")
                assert os.path.getsize(tmp_path / "out") == 3_000_000
                job = await client.submit("echo", {"a": b"y"})
                assert job.job_id
                await client.erase_blob(ref)
                with pytest.raises(NotFoundError):
                    await client.get_blob(ref)
        await front.blobs.close()
        await asyncio.get_running_loop().shutdown_default_executor()

    asyncio.run(run())
    assert not [one for one in threading.enumerate() if one.name.startswith("blobs")]


def cli(client, *words, stdin=b""):
    return subprocess.run(
        [sys.executable, "-m", "forebay", *words, "--url", client.terms.url],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_the_command_line_stores_fetches_and_submits_files(tmp_path):
    data = os.urandom(200_000)
    (tmp_path / "big.bin").write_bytes(data)

    def test(client, _, payloads):
        done = cli(client, "blobs", "put", str(tmp_path / "big.bin"), "--media-type", "a/b")
        blob = done.stdout.decode().strip()
        assert (done.returncode, len(blob)) == (0, 56), done.stderr
        assert cli(client, "blobs", "get", blob).stdout == data
        done = cli(client, "blobs", "get", blob, "--out", str(tmp_path / "out"), "--json")
        assert json.loads(done.stdout)["size"] == 200_000 and (tmp_path / "out").read_bytes() == data
        view = json.loads(cli(client, "blobs", "put", "-", "--json", stdin=b"piped").stdout)
        assert client.get_blob(view["id"]) == b"piped"
        done = cli(client, "submit", "echo", f"@{tmp_path / 'big.bin'}", "--json")
        assert done.returncode == 0, done.stderr
        assert client.get_blob(payloads()[0]) == data
        assert cli(client, "blobs", "rm", blob).returncode == 0
        for words, code in (
            (("get", blob), 1),
            (("get", "../x"), 2),
            (("put", "none"), 2),
            (("rm", "0" * 56), 1),
        ):
            done = cli(client, "blobs", *words)
            assert (done.returncode, done.stdout) == (code, b"")
            assert done.stderr.startswith(b"forebay: ") and done.stderr.count(b"\n") == 1, done.stderr

    with_server(tmp_path, test)


def test_a_text_file_is_still_json(tmp_path):
    (tmp_path / "one.json").write_text('{"a": "ü"}')
    Path(tmp_path / "bad.txt").write_text("not json")

    def test(client, front, payloads):
        assert cli(client, "submit", "echo", f"@{tmp_path / 'one.json'}").returncode == 0
        assert payloads() == [{"a": "ü"}]
        assert cli(client, "submit", "echo", f"@{tmp_path / 'bad.txt'}").returncode == 2
        assert front.blobs.made == 0

    with_server(tmp_path, test)
