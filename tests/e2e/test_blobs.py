"""Blobs of a server that is killed: no accepted job ever misses its blob, and what is left over goes."""

import contextlib
import http.client
import random
import threading

import pytest

from tests.e2e.harness import Served
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
BYTES = {"content-type": "application/octet-stream"}


def files(server):
    return [path for path in (server.directory / "data" / "blobs").rglob("*") if path.is_file()]


def put(server, data):
    answer = server.ask("PUT", "/v1/blobs", data, BYTES)
    assert answer.status == 201, answer
    return answer.json["id"]


def test_kill_9_at_any_moment_leaves_no_accepted_job_without_its_blob(tmp_path):
    draw = random.Random(7)
    accepted = {}

    def client(number):
        for turn in range(10_000):
            if ended.is_set():
                return
            text = f"{number}.{turn}." * draw.randrange(1, 20_000)
            with contextlib.suppress(OSError, http.client.HTTPException, AssertionError, KeyError):
                job = server.submit("slowly", {"$blob": put(server, text.encode())})
                accepted[job["job_id"]] = text

    with Served(tmp_path, "blobs.py", workers=2, env={"FOREBAY_BLOB_GRACE": "1s"}) as server:
        for _ in range(6):
            ended = threading.Event()
            threads = [threading.Thread(target=client, args=(number,)) for number in range(3)]
            for thread in threads:
                thread.start()
            enough = len(accepted) + draw.randrange(2, 15)
            until(lambda most=enough: len(accepted) > most, 60, "some are accepted")
            server.kill()
            ended.set()
            for thread in threads:
                thread.join()
            server.start()
        assert len(accepted) >= 12
        for job_id, text in accepted.items():
            done = server.final(job_id, 60)
            assert done["status"] == "COMPLETED", done
            result = server.get(f"/v1/jobs/{job_id}/result")
            assert result.body == text.encode() + b"!"
        named = {done["$blob"] for one in accepted if (done := server.get(f"/v1/jobs/{one}").json["result"])}
        # Also of those whose answer was cut off. Each job names a blob in its payload and one in its result,
        # of two files each; nothing else outlives the grace.
        stored = [job["job_id"] for job in server.get("/v1/jobs?limit=500").json["items"]]
        assert set(accepted) <= set(stored)
        server.finals(stored)
        until(lambda: len(files(server)) == 4 * len(stored), 30, "what nobody names is swept")
        assert named <= {path.name for path in files(server)}


def test_an_upload_that_a_kill_cut_off_is_gone_after_the_start(tmp_path):
    with Served(tmp_path, "blobs.py", workers=1) as server:
        with contextlib.closing(server.connect()) as connection:
            connection.putrequest("PUT", "/v1/blobs")
            connection.putheader("content-length", "10000000")
            connection.endheaders(b"x" * 5_000_000)
            until(
                lambda: sum(path.stat().st_size for path in files(server)) > 1_000_000, 10, "it is on its way"
            )
            server.kill()
        server.start()
        assert files(server) == []
        blob = put(server, b"hello")
        job = server.submit("copy", {"$blob": blob}, wait=10)
        assert server.get(f"/v1/jobs/{job['job_id']}/result").body == b"hello"
        assert b'inference_blobs_total{event="stored"} 1.0' in server.get("/metrics").body
