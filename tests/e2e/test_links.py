"""Signed links of a real server with keys: from the command line and the client, across a restart."""

import re
import urllib.error
import urllib.request

import pytest

import forebay
from forebay.secret import new_secret
from tests.e2e.harness import Served
from tests.e2e.test_keys_served import bearer, command
from tests.ports import free_port

KEY = "fb_link_0123456789abcdefghijklmnopqrstuvwxyz"


def fetched(url):
    """What anybody gets, without a key: (status, body)."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.timeout(180)
def test_what_is_handed_on_opens_without_a_key_across_a_restart_until_its_secret_goes(tmp_path):
    env = {"FOREBAY_API_KEYS": f"{KEY}=a", "FOREBAY_LINK_TTL": "1h"}
    with Served(tmp_path, env=env, port=free_port()) as server:
        url = f"http://127.0.0.1:{server.port}"
        with forebay.Client(url, KEY) as client:
            job = client.submit("echo", "hello")
            assert job.result(timeout="1m") == "hello"
            ref = client.put_blob(b"bytes")
            links = [client.link_result(job.job_id, ttl="1h")["url"], client.link_blob(ref)["url"]]
        made = command("jobs", "link", job.job_id, "--ttl", "10m", url=url, key=KEY)
        assert made.returncode == 0, made.stderr
        links.append(made.stdout.strip())
        links.append(command("blobs", "link", ref.id, url=url, key=KEY).stdout.strip())
        shown = server.get(f"/v1/jobs/{job.job_id}", headers=bearer(KEY)).json
        links.append(url + shown["links"]["download"])
        wanted = [(200, body) for body in (b'"hello"', b"bytes", b'"hello"', b"bytes", b'"hello"')]
        assert fetched(f"{url}/v1/jobs/{job.job_id}/result")[0] == 401
        assert [fetched(link) for link in links] == wanted
        server.kill()
        server.start()
        assert [fetched(link) for link in links] == wanted
        assert server.stop() == 0
        server.extra["FOREBAY_LINK_SECRET"] = new_secret()
        server.start()
        assert [fetched(link)[0] for link in links] == [403] * len(links)
        for link in links:
            assert re.search("sig=(.{12})", link)[1] not in server.log
        assert server.stop() == 0
