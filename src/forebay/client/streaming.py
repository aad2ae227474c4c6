"""follow, afollow: read the events of a job over HTTP, blocking or awaiting, through whatever breaks."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

from forebay.client import plans
from forebay.client.drive import adrive, drive
from forebay.client.events import Following, JobEvent, PartReader
from forebay.client.plans import Terms
from forebay.client.transport import AsyncTransport, SyncTransport
from forebay.client.wire import Answer, Lost


def follow(following: Following, transport: SyncTransport) -> Iterator[JobEvent]:
    """Yield events to the end of the job. Raises what Following raises."""
    while True:
        opened: httpx.Response | Answer | Lost | None
        opened = transport.open(following.call(), following.silence_s)
        if isinstance(opened, httpx.Response):
            try:
                for piece in _pieces(opened):
                    yield from following.feed(piece)
                    if following.done:
                        return
            finally:
                opened.close()
            opened = None
        time.sleep(following.broken(opened))


async def afollow(following: Following, transport: AsyncTransport) -> AsyncIterator[JobEvent]:
    """Yield events to the end of the job. Raises what Following raises."""
    while True:
        opened: httpx.Response | Answer | Lost | None
        opened = await transport.open(following.call(), following.silence_s)
        if isinstance(opened, httpx.Response):
            try:
                async for piece in _apieces(opened):
                    for event in following.feed(piece):
                        yield event
                    if following.done:
                        return
            finally:
                await opened.aclose()
            opened = None
        await asyncio.sleep(following.broken(opened))


def parts(following: Following, terms: Terms, transport: SyncTransport) -> Iterator[Any]:
    """Yield the parts of the output of a job, each once. Raises what Following and PartReader raise, and
    JobFailedError."""
    reader = PartReader()
    for event in follow(following, transport):
        yield from reader.take(event)
    assert reader.view is not None
    yield from reader.rest(drive(plans.outcome(reader.view, terms), transport))


async def aparts(following: Following, terms: Terms, transport: AsyncTransport) -> AsyncIterator[Any]:
    """The same, awaited."""
    reader = PartReader()
    async for event in afollow(following, transport):
        for part in reader.take(event):
            yield part
    assert reader.view is not None
    for part in reader.rest(await adrive(plans.outcome(reader.view, terms), transport)):
        yield part


def _pieces(answer: httpx.Response) -> Iterator[bytes]:
    """Yield what comes; a connection that breaks is an end like any other."""
    try:
        yield from answer.iter_raw()
    except httpx.HTTPError:
        return


async def _apieces(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    except httpx.HTTPError:
        return
