"""MapRun: one map over many items, from the user's iterable to the results."""

import asyncio
import itertools
import time
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

from forebay.client import arguments, blobs
from forebay.client.bulk import Line
from forebay.client.carry import Carrier, Progress, Source
from forebay.client.drive import adrive
from forebay.client.encode import Options, submission
from forebay.client.plans import Terms
from forebay.client.records import Mapped
from forebay.client.transport import AsyncTransport
from forebay.errors import ForebayError, InvalidError, UnreachableError

CONCURRENCY_MAX = 200  # calls in flight
TAKE_S = 0.02  # an iterable that is slow hands over what it has after this long

Take = Callable[[int], Awaitable[list[object]]]  # up to so many payloads; an empty list is the end


class MapRun:
    """What one map was asked to do; `completed` does it. Raises InvalidError for a wrong argument."""

    def __init__(
        self,
        task: str,
        rate: str | float | None,
        concurrency: int,
        retry_for: str | float | None,
        run_id: str | None,
        progress: Callable[[Progress], None] | None,
        options: Options,
    ) -> None:
        if not 1 <= concurrency <= CONCURRENCY_MAX:
            raise InvalidError(f"concurrency: must be from 1 to {CONCURRENCY_MAX}, not {concurrency}")
        self.task = task
        self.rate_per_s = arguments.rate(rate)
        self.concurrency = concurrency
        self.retry_for_s = None if retry_for is None else arguments.seconds("retry_for", retry_for)
        self.run_id = run_id or uuid.uuid4().hex
        self.progress = progress
        self.options = options

    async def completed(
        self,
        items: Iterable[object] | AsyncIterable[object] | Take,
        transport: AsyncTransport,
        terms: Terms,
    ) -> AsyncIterator[Mapped]:
        """Yield every item once it has ended."""
        carrier = self.carrier(transport, terms)
        async for item in carrier.run(self.lines(take_from(items), transport, terms)):
            yield item
            carrier.release()

    def carrier(self, transport: AsyncTransport, terms: Terms) -> Carrier:
        """Return a fresh carrier on these terms."""
        if self.retry_for_s is not None:
            terms = terms._replace(retry_for_s=self.retry_for_s)
        return Carrier(
            transport,
            terms,
            rate_per_s=self.rate_per_s,
            concurrency=self.concurrency,
            wait=True,
            progress=self.progress,
            task=self.task,
            ordered=self.options.ordering_key is not None,
        )

    def lines(self, take: Take, transport: AsyncTransport, terms: Terms) -> Source:
        """Return the submissions of the payloads, each under the key of its place in this run; what is large
        is uploaded before."""
        places = itertools.count()

        async def source(count: int) -> list[Line | Mapped]:
            payloads = await take(count)
            return [await self._line(next(places), payload, transport, terms) for payload in payloads]

        return source

    async def _line(
        self, index: int, payload: object, transport: AsyncTransport, terms: Terms
    ) -> Line | Mapped:
        try:
            found = await adrive(blobs.settled(payload, terms), transport)
            return Line(index, submission(self.task, found, self.options, f"{self.run_id}-{index}"))
        except UnreachableError:
            raise
        except ForebayError as fault:
            return Mapped(index, None, None, fault)


async def in_order(
    run: MapRun,
    items: Iterable[object] | AsyncIterable[object] | Take,
    transport: AsyncTransport,
    terms: Terms,
    *,
    return_errors: bool,
) -> AsyncIterator[Any]:
    """Yield the results in the order of the items; holds back at most a window of them."""
    carrier = run.carrier(transport, terms)
    held: dict[int, Mapped] = {}
    turn = 0
    async for item in carrier.run(run.lines(take_from(items), transport, terms)):
        held[item.place] = item
        while turn in held:
            ready = held.pop(turn)
            turn += 1
            if ready.error is not None and not return_errors:
                raise ready.error
            yield ready.error if ready.error is not None else ready.result
            carrier.release()


def take_from(items: Iterable[object] | AsyncIterable[object] | Take) -> Take:
    """Return how payloads are taken from what the user gave."""
    if isinstance(items, AsyncIterable):
        coming: AsyncIterable[object] = items  # pyright: ignore[reportUnknownVariableType]
        return _from_async(coming)
    if isinstance(items, Iterable):
        given: Iterable[object] = items  # pyright: ignore[reportUnknownVariableType]
        iterator = iter(given)

        async def take(count: int) -> list[object]:
            return some(iterator, count)

        return take
    return items


def some(iterator: Iterator[object], count: int) -> list[object]:
    """Return up to `count` items: fewer when the iterator is slow, none only at its end."""
    until = time.monotonic() + TAKE_S
    found: list[object] = []
    for item in iterator:
        found.append(item)
        if len(found) >= count or time.monotonic() > until:
            break
    return found


def _from_async(items: AsyncIterable[object]) -> Take:
    iterator = aiter(items)
    coming: asyncio.Future[object] | None = None

    async def take(count: int) -> list[object]:
        nonlocal coming
        found: list[object] = []
        while len(found) < count:
            coming = coming or asyncio.ensure_future(anext(iterator))
            if found and not coming.done():
                await asyncio.sleep(0)
                if not coming.done():
                    break  # it stays under way for the next take
            try:
                found.append(await coming)
            except StopAsyncIteration:
                break  # `coming` stays ended, so the next take is empty
            coming = None
        return found

    return take
