"""`forebay conform` on a real server: it works under a name of its own and leaves no key, even when stopped."""

import fcntl
import json
import os
import signal
import subprocess
import sys

import pytest

from forebay.engines import shipped
from tests.brokers.redis.server import RedisServer
from tests.waiting import until

pytestmark = pytest.mark.engines
WAIT_MAX_S = 60.0


def begun(url, *more, **how):
    return subprocess.Popen(
        [sys.executable, "-m", "forebay", "conform", url, *more],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **how},
    )


def keys(server):
    return server.ask("KEYS", "{forebay_conform*")


def test_the_checks_hold_and_nothing_is_left(server):
    asked = begun(server.url("mine"), "--only", "what_was", "--json")
    out, err = asked.communicate(timeout=WAIT_MAX_S)
    report = json.loads(out)
    assert (asked.returncode, err, report["failed"]) == (0, "", [])
    assert report["passed"] and {one["needs"] for one in report["not_applicable"]} == {"owned"}
    (ours,) = [engine for engine in shipped() if engine.extra == "redis"]
    assert report["capabilities"] == {
        name: getattr(ours.checked, name) for name in ("durable", "ordered", "own_clock", "shared")
    }
    assert keys(server) == [] and server.keys("mine") == {}


def test_on_a_server_that_does_not_sync_what_needs_that_does_not_apply():
    own = RedisServer()
    try:
        own.start(appendfsync="everysec")
        asked = begun(own.url(), "--only", "what_was", "--json")
        report = json.loads(asked.communicate(timeout=WAIT_MAX_S)[0])
        assert not report["capabilities"]["durable"] and not report["failed"]
        assert "durable" in {one["needs"] for one in report["not_applicable"]}
    finally:
        own.stop()


def test_stopped_in_the_middle_it_still_leaves_nothing(server):
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4_096)  # less than it prints: it cannot end before it is read
    asked = begun(server.url(), stdout=writing)
    os.close(writing)
    with os.fdopen(reading) as printed:
        assert printed.readline().startswith("ok")
        until(lambda: keys(server), WAIT_MAX_S, "it made a store")
        asked.send_signal(signal.SIGTERM)
        printed.read()
    assert asked.wait(WAIT_MAX_S) == 130, asked.communicate()
    asked.communicate()
    assert keys(server) == []
