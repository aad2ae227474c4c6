"""A pipeline whose process cannot be had now is tried again, and is no reason for the server not to stop."""

import asyncio
import errno
import os
from types import SimpleNamespace

import pytest

from forebay.clock import SystemClock
from forebay.node import process
from forebay.pipeline.hosts import Host, Terms


def too_many(*_, **__):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("name", ["socketpair", "spawn"])
def test_a_pipeline_that_finds_no_descriptors_waits_and_says_so_and_the_server_can_stop(
    monkeypatch, tmp_path, name
):
    lines = []
    log = SimpleNamespace(warning=lambda event, **facts: lines.append((event, facts["error"])))

    async def run():
        monkeypatch.setattr(process.socket if name == "socketpair" else process, name, too_many)
        terms = Terms(
            app="none.py",
            data=tmp_path,
            env={},
            tasks={},
            requests=None,
            new_id=str,
            clock=SystemClock(),
            log=log,
        )
        host = Host("cameras", terms, None)
        host.start()
        async with asyncio.timeout(30.0):
            while host.state == "starting":
                await asyncio.sleep(0)
            state = host.state
            await host.close(0.1)
        return state

    assert asyncio.run(run()) == "backoff"
    assert lines == [("pipeline_not_started", "[Errno 24] Too many open files")]
