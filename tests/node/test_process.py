"""The start of a child where the machine has one descriptor too few: nothing is left open, nobody running."""

import asyncio
import errno
import os
import sys

import pytest

from forebay.node import process
from forebay.node.process import ChildProcess

SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]


def open_now():
    return set(os.listdir("/proc/self/fd"))


def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return file.read().split()


def too_many(*_, **__):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("name", ["memfd_create", "ftruncate", "pidfd_open", "spawn"])
def test_a_start_that_fails_at_any_step_leaves_nothing_behind(monkeypatch, name):
    monkeypatch.setattr(process if name == "spawn" else process.os, name, too_many)
    before = open_now(), children()
    with open(os.devnull) as line, pytest.raises(OSError, match="Too many open files"):
        ChildProcess().start(SLEEPS, dict(os.environ), None, line.fileno())
    assert (open_now(), children()) == before


@pytest.mark.parametrize("name", ["socketpair", "pidfd_open", "create_unix_connection"])
def test_a_start_with_a_socket_that_fails_leaves_nothing_behind_either(monkeypatch, name):
    async def run():
        owner = {"socketpair": process.socket, "pidfd_open": process.os}.get(name, asyncio.get_running_loop())
        before = open_now(), children()
        with monkeypatch.context() as patched, pytest.raises(OSError, match="Too many open files"):
            patched.setattr(owner, name, too_many)
            await ChildProcess().connect(SLEEPS, dict(os.environ), None, asyncio.Protocol)
        assert (open_now(), children()) == before

    asyncio.run(run())


def test_a_start_that_works_leaves_what_discard_takes_away():
    before = open_now(), children()
    child = ChildProcess()
    with open(os.devnull) as line:
        child.start(SLEEPS, dict(os.environ), None, line.fileno())
    assert str(child.pid) in children()
    child.discard()
    assert (open_now(), children()) == before
