"""Bridge: a map for programs that block. The run goes on in a thread with its own event loop; the
user's iterable is read, and the results are handed over, in the user's thread.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from forebay.client.mapping import MapRun, Take, in_order, some
from forebay.client.plans import Terms
from forebay.client.transport import AsyncTransport, Link

JOIN_S = 5.0  # how long a map that is left early waits for its thread


class _Want(NamedTuple):
    most: int
    answer: "asyncio.Future[list[object]]"


class _Out(NamedTuple):
    item: Any


class _End(NamedTuple):
    error: BaseException | None


class Bridge:
    """One blocking map."""

    def __init__(self, run: MapRun, place: Link, terms: Terms) -> None:
        self._run = run
        self._place = place
        self._terms = terms
        # Bounded in fact: one want at a time, and no more results than the run's window.
        self._events: queue.SimpleQueue[_Want | _Out | _End] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def completed(self, items: Iterable[object]) -> Iterator[Any]:
        """Yield every item as Mapped once it has ended."""
        return self._walk(items, lambda transport, take: self._run.completed(take, transport, self._terms))

    def in_order(self, items: Iterable[object], *, return_errors: bool) -> Iterator[Any]:
        """Yield the results in the order of the items."""
        return self._walk(
            items,
            lambda transport, take: in_order(
                self._run, take, transport, self._terms, return_errors=return_errors
            ),
        )

    def _walk(self, items: Iterable[object], results: "_Results") -> Iterator[Any]:
        iterator = iter(items)
        thread = threading.Thread(target=self._thread, args=(results,), name="forebay-map", daemon=True)
        thread.start()
        try:
            while True:
                event = self._events.get()
                if isinstance(event, _Want):
                    batch = some(iterator, event.most)
                    self._call(_answer, event.answer, batch)
                elif isinstance(event, _Out):
                    yield event.item
                elif event.error is not None:
                    raise event.error
                else:
                    return
        finally:
            self._call(self._cancel)
            thread.join(JOIN_S)

    def _call(self, function: Any, *arguments: Any) -> None:
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(function, *arguments)
            except RuntimeError:
                return  # the loop has ended, and with it whoever was waiting

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _thread(self, results: "_Results") -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._main(results))
        except asyncio.CancelledError:
            pass
        except BaseException as found:
            error = found
        self._events.put(_End(error))

    async def _main(self, results: "_Results") -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        async with AsyncTransport(self._place) as transport:
            async for item in results(transport, self._take):
                self._events.put(_Out(item))

    async def _take(self, count: int) -> list[object]:
        answer: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
        self._events.put(_Want(count, answer))
        return await answer


class _Results(Protocol):
    """The shape of a function from (transport, take) to the results."""

    def __call__(self, transport: AsyncTransport, take: Take) -> AsyncIterator[Any]: ...  # pragma: no cover


def _answer(answer: "asyncio.Future[list[object]]", batch: list[object]) -> None:
    if not answer.done():
        answer.set_result(batch)
