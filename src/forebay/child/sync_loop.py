"""SyncLoop: the main thread takes work from the line and runs one item or batch at a time."""

from queue import SimpleQueue
from time import perf_counter
from typing import Final

from forebay.child.handler import Handler, Raised
from forebay.child.line import Line, Work
from forebay.declare.circuits import works_for
from forebay.node.frames import MARK_COMPANY, MARK_NOTHING, RunItem

FLUSH_S: Final = 0.005


class SyncLoop:
    """Runs one item or one batch at a time in the main thread."""

    def __init__(self, line: Line, handlers: dict[str, Handler], mark: memoryview) -> None:
        self._line = line
        self._handlers = handlers
        self._mark = mark  # the node reads which item ran when this process died
        self._wakes: SimpleQueue[None] = SimpleQueue()
        line.hooks = self

    def arrived(self) -> None:
        """Called by the reader."""
        self._wakes.put(None)

    def cancelled(self, tag: int) -> None:
        """Called by the reader: the handler's Context tells already."""

    def run(self) -> None:
        """Run what comes until the node says stop."""
        line = self._line
        # What came while we loaded rang nobody.
        self._wakes.put(None)
        while True:
            self._wakes.get()
            while line.works:
                work = line.current = line.works[0]
                line.works.popleft()
                self._run(work)
                line.current = None
                line.flush()
                line.departures += 1
                if line.cancelled:
                    line.cancelled.clear()
            if line.stopping:
                line.flush_news()
                return

    def _run(self, work: Work) -> None:
        handler = self._handlers[work.task].at(work.level)
        works_for(work.task)
        if handler.batched and not work.singles:
            self._run_batch(handler, work.run, work.take_all())
        else:
            self._run_singles(handler, work)

    def _run_singles(self, handler: Handler, work: Work) -> None:
        line, mark, pending = self._line, self._mark, work.pending
        began = flushed = perf_counter()
        while pending:
            try:
                item = pending.popleft()
            except IndexError:  # the reader gave the last one back
                break
            mark[0] = item.tag + 1
            if handler.batched:
                self._call_batch(handler, work.run, [item])
            else:
                line.add(handler.run_one(item))
            now = perf_counter()
            line.busy_s += now - began
            began = now
            if now - flushed > FLUSH_S or line.crowded:
                flushed = now
                line.flush()
        mark[0] = MARK_NOTHING

    def _run_batch(self, handler: Handler, run: int, items: list[RunItem]) -> None:
        self._mark[0] = MARK_COMPANY
        began = perf_counter()
        self._call_batch(handler, run, items)
        self._line.busy_s += perf_counter() - began
        self._mark[0] = MARK_NOTHING

    def _call_batch(self, handler: Handler, run: int, items: list[RunItem]) -> None:
        for call in handler.batch_calls(items, self._line.add, lambda size: self._line.passes(run, size)):
            try:
                answer = handler.call(call.values, *handler.context(call.items))
                call.answer = handler.gather(call.items, answer) if handler.in_parts else answer
            except BaseException as error:
                call.answer = Raised(error)
