"""AsyncLoop: async handlers side by side on one loop in the main thread.

Imported only where a handler is async: asyncio is most of the start of a small child.
"""

import asyncio
from collections.abc import Coroutine
from time import perf_counter
from typing import Any

from forebay.child.handler import Call, Handler, Raised
from forebay.child.line import FLUSH_S, Line, Work
from forebay.declare.circuits import works_for
from forebay.node.frames import RunItem


class AsyncLoop:
    """Runs async handlers side by side, up to each one's `concurrency`; a plain function runs in between
    and holds the others up while it does."""

    def __init__(self, line: Line, handlers: dict[str, Handler]) -> None:
        self._line = line
        self._handlers = handlers
        self._loop = own_loop()
        self._active = dict.fromkeys(handlers, 0)
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by tag
        self._holding: set[asyncio.Task[None]] = set()
        self._flushing = False
        line.hooks = self

    def arrived(self) -> None:
        """Called by the reader."""
        self._loop.call_soon_threadsafe(self._pump)

    def cancelled(self, tag: int) -> None:
        """Called by the reader: a running coroutine is cancelled, as asyncio does it."""
        self._loop.call_soon_threadsafe(self._cancel, tag)

    def run(self) -> None:
        """Run what comes until the node says stop."""
        self._loop.call_soon(self._pump)
        self._loop.run_forever()
        self._line.flush()
        self._line.flush_news()

    def _pump(self) -> None:
        works = self._line.works
        for work in list(works):
            handler = self._handlers[work.task].at(work.level)
            if not handler.is_async and not handler.batched:
                self._run_plain(handler, work)
            while work.pending and self._active[work.task] < handler.concurrency:
                self._begin(handler, work)
            if not work.pending:
                works.remove(work)
                self._line.departures += 1
        if not any(self._active.values()):
            self._line.cancelled.clear()
            if self._line.stopping and not works:
                self._loop.stop()
        self._flush_soon()

    def _begin(self, handler: Handler, work: Work) -> None:
        if handler.batched:
            items = work.take_all() if not work.singles else _take_one(work)
            if items:
                self._spawn(handler, items, self._batch(handler, work.run, items))
            return
        for item in _take_one(work):
            self._spawn(handler, [item], self._one(handler, item))

    def _run_plain(self, handler: Handler, work: Work) -> None:
        """Run plain calls and say how long they took: what the node would measure in its place is its own
        round trip, and on a busy machine it would believe that the handler is slow and send one at a time."""
        line = self._line
        works_for(handler.name)
        line.flush()  # the time told with results is of these alone
        began = flushed = perf_counter()
        while taken := _take_one(work):
            result = handler.run_one(taken[0])
            now = perf_counter()
            line.busy_s += now - began  # before the result: the reader may flush at any moment
            line.add(result)
            began = now
            if now - flushed > FLUSH_S or line.crowded:
                flushed = now
                line.flush()
        line.flush()

    def _spawn(self, handler: Handler, items: list[RunItem], doing: Coroutine[Any, Any, None]) -> None:
        self._active[handler.name] += 1
        self._line.active += 1
        task = self._loop.create_task(doing)
        self._holding.add(task)
        for item in items:
            self._tasks[item.tag] = task
        task.add_done_callback(lambda task: self._ended(handler, items, task))

    def _ended(self, handler: Handler, items: list[RunItem], task: "asyncio.Task[None]") -> None:
        self._active[handler.name] -= 1
        self._line.active -= 1
        self._holding.discard(task)
        for item in items:
            self._tasks.pop(item.tag, None)
            if task.cancelled():  # before its first step: nothing of ours ran to report it
                self._line.add(handler.failure(item.tag, asyncio.CancelledError()))
        self._pump()

    async def _one(self, handler: Handler, item: RunItem) -> None:
        works_for(handler.name)
        self._line.add(await handler.run_one_async(item))

    async def _batch(self, handler: Handler, run: int, items: list[RunItem]) -> None:
        works_for(handler.name)
        for call in handler.batch_calls(items, self._line.add, lambda size: self._line.passes(run, size)):
            try:
                call.answer = await self._answer(handler, call)
            except BaseException as error:
                call.answer = Raised(error)

    async def _answer(self, handler: Handler, call: Call) -> Any:
        answer = handler.call(call.values, *handler.context(call.items))
        if not handler.in_parts:
            return (await answer) if handler.is_async else answer
        if not handler.is_async:
            return handler.gather(call.items, answer)
        return await handler.gather_async(call.items, answer)

    def _cancel(self, tag: int) -> None:
        task = self._tasks.get(tag)
        if task is not None and self._line.cancelled.issuperset(
            other for other, its in self._tasks.items() if its is task
        ):
            task.cancel()

    def _flush_soon(self) -> None:
        # After the callbacks that are due already, so that what ends together travels together.
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._line.flush()


def _take_one(work: Work) -> list[RunItem]:
    try:
        return [work.pending.popleft()]
    except IndexError:  # the reader gave the last one back
        return []


_own_loop: list[asyncio.AbstractEventLoop] = []


def own_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of this process; load and predict share it."""
    if not _own_loop:
        _own_loop.append(asyncio.new_event_loop())
        asyncio.set_event_loop(_own_loop[0])
    return _own_loop[0]
