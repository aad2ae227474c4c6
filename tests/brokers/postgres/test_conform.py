"""`forebay conform` on a real server: it makes a schema of its own and leaves none, even when it is stopped."""

import fcntl
import json
import os
import signal
import subprocess
import sys

import pytest

from forebay.engines import shipped
from tests.waiting import until

pytestmark = pytest.mark.engines
WAIT_MAX_S = 60.0


def begun(url, *more, **how):
    return subprocess.Popen(
        [sys.executable, "-m", "forebay", "conform", url, *more],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **how},
    )


def schemas(server):
    return [
        name
        for (name,) in server.sql("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'forebay_conform%'")
    ]


def test_the_checks_hold_and_nothing_is_left(server):
    asked = begun(server.url("mine"), "--only", "what_was", "--json")
    out, err = asked.communicate(timeout=WAIT_MAX_S)
    report = json.loads(out)
    assert (asked.returncode, err, report["failed"]) == (0, "", [])
    assert report["passed"] and {one["needs"] for one in report["not_applicable"]} == {"owned"}
    (ours,) = [engine for engine in shipped() if engine.extra == "postgres"]
    assert report["capabilities"] == {
        name: getattr(ours.checked, name) for name in ("durable", "ordered", "own_clock", "shared")
    }
    assert schemas(server) == []
    assert server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'mine'") == [(0,)]


def test_stopped_in_the_middle_it_still_leaves_nothing(server):
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4_096)  # less than it prints: it cannot end before it is read
    asked = begun(server.url(), stdout=writing)
    os.close(writing)
    with os.fdopen(reading) as printed:
        assert printed.readline().startswith("ok")
        until(lambda: schemas(server), WAIT_MAX_S, "it made a schema")
        asked.send_signal(signal.SIGTERM)
        printed.read()
    assert asked.wait(WAIT_MAX_S) == 130, asked.communicate()
    asked.communicate()
    assert schemas(server) == []


def test_a_role_without_the_right_is_one_line_and_code_3(server):
    server.sql("DROP ROLE IF EXISTS rightless", "CREATE ROLE rightless LOGIN")
    asked = begun(server.url(user="rightless"))
    out, err = asked.communicate(timeout=WAIT_MAX_S)
    assert (asked.returncode, out, err.count("\n")) == (3, "", 1)
    assert "rightless" in err and "may not make" in err
