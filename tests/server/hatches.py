"""What the tests of the hatch share: a clock that stands, and which requests the hatch takes."""

import asyncio
import re

import pytest

from forebay.clock import SystemClock
from forebay.server import hatch

NOW = 1_800_000_000.25
HOST = b"Host: localhost\r\n"
TYPE = b"Content-Type: application/json\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"


class Standing(SystemClock):
    """Stands still, so that two answers can be the same; sleeps all the same."""

    def now(self):
        return NOW

    def random(self):
        return 0.5


class Watched:
    """Counts which requests the hatch takes, or has it take none."""

    def __init__(self, monkeypatch):
        self.taken = 0
        self.closed = False
        begin = hatch.Hatch.begin

        def watched(one, connection):
            found = None if self.closed else begin(one, connection)
            self.taken += found is not None
            return found

        monkeypatch.setattr(hatch.Hatch, "begin", watched)


@pytest.fixture
def watched(monkeypatch):
    return Watched(monkeypatch)


def read_one(reader):
    """Return one whole answer with its head."""

    async def read():
        lines = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", lines)[1])
        return lines + await reader.readexactly(length)

    return asyncio.wait_for(read(), 30)


async def eventually(condition):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.002)


def alike(answer):
    """Return an answer without what differs from one to the next: the date and the id."""
    answer = re.sub(rb"date: [^\r]+", b"date: today", answer)
    return re.sub(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", b"ID", answer)
