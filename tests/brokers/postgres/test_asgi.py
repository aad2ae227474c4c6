"""`forebay.asgi:app` under a uvicorn that we did not start: hostile heads are refused there too."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from forebay.server.limits import HEADERS_TIMEOUT_S
from tests.e2e.harness import APPS, SHORT
from tests.ports import free_port
from tests.waiting import until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(240)]
WAIT_MAX_S = 90.0
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@contextlib.contextmanager
def uvicorn(server, root, *options):
    """Serve under uvicorn; yield its port."""
    server.drop("asgi_heads")
    port = free_port()
    env = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    env |= {"FOREBAY_BROKER": server.url("asgi_heads"), "FOREBAY_APP": str(APPS / "gated.py"), **SHORT}
    with (root / "log").open("wb") as log:
        one = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "forebay.asgi:app", "--port", str(port), *options],
            cwd=root,
            env={**env, "E2E_LEDGER": str(root / "ledger")},
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: answers(port, one, root), WAIT_MAX_S, "uvicorn serves")
        yield port
    finally:
        one.send_signal(signal.SIGTERM)
        one.wait(WAIT_MAX_S)
    text = (root / "log").read_text()
    assert "Traceback" not in text, text


def answers(port, process, root):
    assert process.poll() is None, (root / "log").read_text()
    with contextlib.suppress(OSError):
        return ask(port, GET + b"\r\n") == 200
    return False


def ask(port, sent):
    """Return the status of what comes back for these bytes, None for an end without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_MAX_S) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        return status_of(connection)


def status_of(connection):
    with contextlib.suppress(ConnectionError):
        line = connection.makefile("rb").readline()
        return int(line.split()[1]) if line else None


@pytest.mark.parametrize("options", [(), ("--http", "forebay.asgi:Guarded")], ids=["plain", "guarded"])
def test_heads_that_are_too_large_or_no_heads_are_refused_and_others_are_answered(server, tmp_path, options):
    with uvicorn(server, tmp_path, *options) as port:
        many = b"".join(b"x-%d: 1\r\n" % n for n in range(10_000))
        assert ask(port, GET + b"x: " + b"a" * (40 << 10) + b"\r\n\r\n") == 431
        assert ask(port, GET + b"".join(b"x-%d: 1\r\n" % n for n in range(101)) + b"\r\n") == 431
        assert ask(port, GET + many + b"\r\n") == 431
        assert ask(port, GET + b"x: a\0b\r\n\r\n") == 400
        assert ask(port, GET + b": empty\r\n\r\n") == 400
        assert ask(port, GET + b"\r\n") == 200


def test_a_head_that_does_not_come_is_not_waited_for_for_ever(server, tmp_path):
    with uvicorn(server, tmp_path, "--http", "forebay.asgi:Guarded") as port:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=WAIT_MAX_S) as begun,
            socket.create_connection(("127.0.0.1", port), timeout=WAIT_MAX_S) as silent,
        ):
            began = time.monotonic()
            begun.sendall(GET)
            assert status_of(begun) == 408 and status_of(silent) is None
            assert time.monotonic() - began >= HEADERS_TIMEOUT_S - 1.0
        assert ask(port, GET + b"\r\n") == 200
