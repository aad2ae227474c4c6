"""Callbacks of a real server: told at least once through kills, by one message, and never in anybody's way."""

import asyncio
import contextlib
import json
import random
import signal
import subprocess
import sys
import time

import pytest

from forebay.client import AsyncClient, Client
from forebay.errors import InvalidError, StateConflictError
from forebay.keys import new_payload_key
from tests.e2e.harness import FINAL, SHORT, Served
from tests.e2e.hooks import Hook
from tests.waiting import until

pytestmark = pytest.mark.timeout(240)  # several starts of a server each, on a machine that may be busy
INSIDE = {"FOREBAY_WEBHOOKS_ALLOW_PRIVATE": "true", **SHORT}
TOLD_MAX_S = 60.0


def delivery(server, job_id):
    items = server.get(f"/v1/jobs/{job_id}/deliveries").json["items"]
    return items[0] if items else None


def told(hook, server, job_id):
    """Wait until a job's message came; return it."""
    return until(lambda: hook.of(job_id), TOLD_MAX_S, f"the callback of {job_id}")[0]


def test_w1_a_server_killed_between_result_and_delivery_tells_after_its_next_start(tmp_path):
    hook = Hook()  # nobody listens yet
    url = hook.url
    with Served(tmp_path, env=INSIDE) as server:
        ids = [server.submit("echo", n, callback_url=url)["job_id"] for n in range(5)]
        for job_id in ids:
            server.final(job_id)
            until(lambda job_id=job_id: delivery(server, job_id)["tries"], 45, "a try that failed")
        server.kill()
        hook.secret = (tmp_path / "data" / "webhook_secret").read_text().strip()
        with hook.open():
            server.start()
            for job_id in ids:
                job = told(hook, server, job_id)
                assert (job["status"], job["job_id"]) == ("COMPLETED", job_id)
            until(
                lambda: all(delivery(server, job_id)["state"] == "delivered" for job_id in ids),
                20.0,
                "all delivered",
            )
        assert hook.secret not in server.log
        assert hook.secret.removeprefix("whsec_") not in server.log


def test_row_54_a_server_killed_between_the_answer_and_its_mark_tells_twice_under_one_id(tmp_path):
    with Served(tmp_path, env=INSIDE) as server, Hook() as hook:
        hook.before = lambda count: server.kill() if count == 1 else None
        job_id = server.submit("echo", 1, callback_url=hook.url)["job_id"]
        until(lambda: server.process.poll() is not None, 45, "killed by the first message")
        server.start()
        until(lambda: len(hook.of(job_id)) == 2, TOLD_MAX_S, "told again")
        assert {message for message, _ in hook.got} == {f"msg_{job_id}"}
        until(lambda: delivery(server, job_id)["state"] == "delivered", 45, "delivered")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_callback_is_lost_and_none_is_early_in_a_campaign_of_kills(tmp_path):
    chance = random.Random(54)
    with Served(tmp_path, env=INSIDE) as server, Hook() as hook:
        hook.before = lambda count: time.sleep(chance.random() / 20)
        ids = []
        for _ in range(8):
            lines = [{"task": "echo", "payload": n, "callback_url": hook.url} for n in range(50)]
            ids += [verdict["job_id"] for verdict in server.submit_many(lines)]
            time.sleep(chance.random() * 0.6)
            server.kill()
            server.start()
        for job_id in ids:
            job = told(hook, server, job_id)
            assert job["status"] in FINAL
        records = server.finals(ids)
        for message, job in hook.got:
            assert records[message.removeprefix("msg_")]["status"] == job["status"]
        twice = len(hook.got) - len(ids)
        print(f"{len(ids)} jobs, 8 kills, {twice} told twice")


def test_f057_receivers_that_are_down_are_in_nobodys_way(tmp_path):
    # Nobody listens on the hook's port.
    with contextlib.closing(Hook()) as hook, Served(tmp_path, env=INSIDE) as server:
        ids = [server.submit("echo", n, callback_url=hook.url)["job_id"] for n in range(20)]
        server.finals(ids)
        began = time.monotonic()
        slow = server.submit("tick", ["t", 30])["job_id"]
        server.started("t")
        for n in range(20):
            assert server.submit("echo", n, wait=10)["status"] == "COMPLETED"
        assert server.ask("DELETE", f"/v1/jobs/{slow}").status in {200, 202}
        server.state(slow, "CANCELLED")
        assert server.is_ready()
        assert time.monotonic() - began < 30.0


def test_f053_cancel_and_end_at_one_instant_are_told_once_and_agree(tmp_path):
    with Served(tmp_path, env=INSIDE) as server, Hook() as hook:
        ids = []
        for n in range(30):
            job_id = server.submit("echo", n, callback_url=hook.url)["job_id"]
            server.ask("DELETE", f"/v1/jobs/{job_id}")
            ids.append(job_id)
        records = server.finals(ids)
        for job_id in ids:
            assert told(hook, server, job_id)["state"] == records[job_id]["state"]
        until(lambda: all(delivery(server, one)["state"] == "delivered" for one in ids), 45, "marked")
        assert len(hook.got) == len(ids)


def test_f044_an_end_without_a_worker_is_told_too(tmp_path):
    with Served(tmp_path, env=INSIDE) as server, Hook() as hook:
        assert server.ask("POST", "/v1/queues/echo/pause").status == 200
        late = server.submit("echo", 1, callback_url=hook.url, ttl="300ms")["job_id"]
        dropped = server.submit("echo", 1, callback_url=hook.url)["job_id"]
        server.ask("DELETE", f"/v1/jobs/{dropped}")
        assert told(hook, server, late)["status"] == "EXPIRED"
        assert told(hook, server, dropped)["status"] == "CANCELLED"


def test_a_sealed_job_is_told_in_plain_and_what_is_in_a_blob_by_its_name(tmp_path):
    env = {**INSIDE, "FOREBAY_PAYLOAD_KEYS": new_payload_key()}
    with Served(tmp_path, "blobs.py", env=env) as server, Hook() as hook:

        def end_of(task, payload):
            """Return what the callback was told, and the body of the result alone."""
            job_id = server.submit(task, payload, callback_url=hook.url)["job_id"]
            job = told(hook, server, job_id)
            assert (job["status"], job["error"]) == ("COMPLETED", None)
            return job, server.get(job["links"]["result"]).body

        words = "a word that nobody may read "
        job, body = end_of("say", words)
        assert job["result"] == words and "result_omitted" not in job
        # Over 16 KiB the message leads to the result, over 256 KiB the result is in a blob.
        for times in (1_000, 20_000):
            job, body = end_of("say", words * times)
            if times == 1_000:
                assert (job["result"], job["result_omitted"]) == (None, True)
            else:
                assert server.get(f"/v1/blobs/{job['result']['$blob']}").body == body
            assert json.loads(body) == words * times
        blob = server.ask("PUT", "/v1/blobs", b"\0bytes", {"content-type": "application/octet-stream"}).json[
            "id"
        ]
        job, body = end_of("copy", {"$blob": blob})
        assert set(job["result"]) == {"$blob"} and body == b"\0bytes"
        store = [path for path in (tmp_path / "data").iterdir() if path.is_file()]
        assert any(b"$sealed" in path.read_bytes() for path in store)
        assert not [path for path in store if words.encode() in path.read_bytes()]


def test_a_drain_does_not_wait_for_a_receiver_that_hangs(tmp_path):
    held = []
    with (
        Hook(before=lambda _: (held.append(1), time.sleep(20))) as hook,
        Served(tmp_path, env=INSIDE) as server,
    ):
        server.submit("echo", 1, callback_url=hook.url)
        until(lambda: held, 45, "a message on its way")
        server.signal(signal.SIGTERM)
        assert server.wait(15.0) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FOREBAY_WEBHOOK_SECRET", "hunter2hunter2hunter2"),
        ("FOREBAY_WEBHOOK_SECRET", "whsec_aHVudGVyMg=="),
        ("FOREBAY_WEBHOOKS_PORTS", "443,99999"),
        ("FOREBAY_WEBHOOKS_ALLOW_PRIVATE", "perhaps"),
    ],
)
def test_a_wrong_setting_is_one_line_without_a_secret(tmp_path, name, value):
    server = Served(tmp_path, env={name: value})
    server.launch()
    assert server.wait(20.0) == 2
    assert name in server.log
    assert "SECRET" not in name or value not in server.log
    assert server.log.count("\n") == 1


def test_the_client_and_the_command_line_submit_show_and_replay(tmp_path):
    with Served(tmp_path, env=INSIDE) as server, Hook() as hook:
        url = f"http://127.0.0.1:{server.port}"

        def forebay(*words):
            command = [sys.executable, "-m", "forebay", *words, "--url", url]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert "Traceback" not in done.stderr
            return done.returncode, done.stdout, done.stderr

        with Client(url) as client:
            job = client.submit("echo", 1, callback_url=hook.url)
            assert told(hook, server, job.job_id)["result"] == 1
            until(lambda: client.deliveries(job.job_id)[0]["state"] == "delivered", 45, "delivered")
            client.replay_deliveries(job.job_id)
            until(lambda: len(hook.of(job.job_id)) == 2, 45, "told again")
            (verdict,) = client.submit_many("echo", [2], callback_url=hook.url)
            assert told(hook, server, verdict.job_id)["result"] == 2
            plain = client.submit("echo", 3)
            with pytest.raises(StateConflictError):
                client.replay_deliveries(plain.job_id)
            with pytest.raises(InvalidError, match="callback_url must"):
                client.submit("echo", 1, callback_url="ftp://127.0.0.1/")

        async def awaited():
            async with AsyncClient(url) as client:
                job = await client.submit("echo", 4, callback_url=hook.url)
                await job.result()
                assert (await client.replay_deliveries(job.job_id))[0]["url"] == hook.url
                return await client.deliveries(job.job_id)

        assert len(asyncio.run(awaited())) == 1
        code, out, _ = forebay("submit", "echo", "5", "--callback-url", hook.url, "--json")
        assert code == 0
        job_id = json.loads(out)["job_id"]
        assert told(hook, server, job_id)["result"] == 5
        until(lambda: delivery(server, job_id)["state"] == "delivered", 45, "delivered")
        code, out, _ = forebay("jobs", "deliveries", job_id)
        assert code == 0
        assert f"msg_{job_id}" in out
        assert "delivered" in out
        assert "try 1" in out
        code, out, _ = forebay("jobs", "deliveries", job_id, "--replay", "--json")
        assert (code, json.loads(out)[0]["webhook_id"]) == (0, f"msg_{job_id}")
        assert forebay("jobs", "deliveries", plain.job_id) == (0, "none\n", "")
        assert forebay("jobs", "deliveries", plain.job_id, "--replay")[0] == 1
