"""Real servers on one store: what cannot be used is refused in one line."""

import os
import subprocess
import sys

import pytest

from tests.brokers.redis.server import RedisServer
from tests.e2e.harness import APPS, Served
from tests.ports import free_port

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    ("url", "code", "named"),
    [
        ("redis://u:hush@127.0.0.1:{port}/0", 3, "refused"),
        ("redis://u:hush@127.0.0.1:{port}/0?no_such=1", 2, "no_such"),
        ("redis://u:hush@127.0.0.1:{port}/0?name=a%20b", 2, "name"),
    ],
)
def test_a_server_that_cannot_be_used_is_one_line_and_an_exit_code(tmp_path, url, code, named):
    env = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    command = [sys.executable, "-m", "forebay", "serve", str(APPS / "basic.py"), "--port", "0"]
    ended = subprocess.run(
        [*command, "--broker", url.format(port=free_port())],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == code, ended
    lines = ended.stderr.strip().splitlines()
    assert len(lines) == 1 and named in lines[0] and "hush" not in ended.stderr + ended.stdout, ended


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"appendfsync": "everysec"}, "second or two"), ({"appendonly": "no"}, "snapshot")],
)
def test_what_a_crash_of_the_server_loses_is_told_at_the_start(tmp_path, settings, named):
    own = RedisServer()
    try:
        own.start(**settings)
        with Served(tmp_path, env={"FOREBAY_BROKER": own.url()}) as served:
            (line,) = [one for one in served.log.splitlines() if "store_not_durable" in one]
            assert named in line
    finally:
        own.stop()
