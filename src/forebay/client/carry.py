"""Carrier: carries many submissions to the server at one pace, and waits for their ends when asked to."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple, cast

from forebay.client import plans, wire
from forebay.client.bulk import CHUNK_BYTES_MAX, NO_VERDICT, Line, Sorted, sort_verdicts
from forebay.client.drive import adrive
from forebay.client.faults import fault_of
from forebay.client.pace import Pace
from forebay.client.plans import Terms
from forebay.client.policy import Hint, hint_of, may_repeat
from forebay.client.records import Mapped
from forebay.client.transport import AsyncTransport
from forebay.client.wire import Answer, Lost
from forebay.errors import ForebayError, NotFinishedError, TooLargeError, UnreachableError

CONCURRENCY = 16  # calls in flight
CHUNK_MAX = 200  # lines of one call
WINDOW_MAX = 1000  # items taken from the source and not yet taken by the reader
FRESH_BYTES_MAX = 16 * 1024 * 1024  # of lines that were not sent yet: no more are taken from the source then
POLL_SLICE_S = 2.0  # a job that is not done after this makes room for others at the polls
POLLS_MAX = 16  # jobs waited for at the same time

Source = Callable[[int], Awaitable["list[Line | Mapped]"]]  # up to so many; an empty list is the end


class Progress(NamedTuple):
    """How far a map is: items the server took, items that ended, refusals that made it wait."""

    submitted: int
    ended: int
    pressed: int


class Carrier:
    """One run. `lines` go out in chunks, up to `concurrency` calls at a time; a line that the server
    presses back goes again, at the front. With `ordered` one line goes at a time, so that the server takes
    them in the order they came in; without it, in any order. What a reader must do: iterate `run`, and call
    `release` for every item it has done with, or the run stops after `WINDOW_MAX` of them.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        terms: Terms,
        *,
        rate_per_s: float | None,
        concurrency: int,
        wait: bool,
        progress: Callable[[Progress], None] | None = None,
        task: str = "",
        ordered: bool = False,
    ) -> None:
        self._task = task
        self._transport = transport
        self._terms = terms
        self._patience = terms.patience()
        self._pace = Pace(rate_per_s=rate_per_s, in_flight_max=concurrency * CHUNK_MAX)
        self._concurrency = 1 if ordered else concurrency
        self._polls_max = min(POLLS_MAX, concurrency) if wait else 0
        self._wait = wait
        self._progress = progress
        self._chunk_max = 1 if ordered else CHUNK_MAX
        self._fresh: deque[Line] = deque()
        self._fresh_b = 0
        self._again: deque[Line] = deque()
        self._waiting: deque[tuple[int, str]] = deque()
        self._source_ended = False
        self._open = 0  # taken from the source, not released
        self._flying = 0  # lines in calls without an answer yet
        self._polling = 0
        self._pump_bell, self._door_bell, self._poll_bell = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._door = asyncio.Lock()
        self._out: asyncio.Queue[Mapped | BaseException | None] = asyncio.Queue()
        self.submitted = self.ended = self.pressed = 0

    async def run(self, source: Source) -> AsyncIterator[Mapped]:
        """Yield every item once it has ended, or, without `wait`, once it was taken or refused.

        Raises the ForebayError that stopped the run; the items yielded before it stand.
        """
        task = asyncio.create_task(self._supervise(source))
        try:
            while (item := await self._out.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def release(self, count: int = 1) -> None:
        """Make room for more items: the reader is done with `count` of those it got."""
        self._open -= count
        self._pump_bell.set()

    async def _supervise(self, source: Source) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(source))
                for _ in range(self._concurrency):
                    group.create_task(self._submitter())
                for _ in range(self._polls_max):
                    group.create_task(self._poller())
            self._out.put_nowait(None)
        except BaseExceptionGroup as group_error:
            self._out.put_nowait(_first(group_error))

    async def _pump(self, source: Source) -> None:
        while True:
            room = min(WINDOW_MAX - self._open, CHUNK_MAX - len(self._fresh))
            if room <= 0 or self._fresh_b >= FRESH_BYTES_MAX:
                await _ring(self._pump_bell)
                continue
            batch = await source(room)
            self._open += len(batch)
            for item in batch:
                if isinstance(item, Mapped):
                    self._emit(item)
                else:
                    self._fresh.append(item)
                    self._fresh_b += len(item.body)
            self._source_ended = not batch
            self._door_bell.set()
            if not batch:
                return

    async def _submitter(self) -> None:
        while lines := await self._lines():
            await self._submit(lines)
            self._flying -= len(lines)
            self._door_bell.set()
            self._poll_bell.set()

    async def _lines(self) -> list[Line]:
        """Return the lines of the next call as soon as the pace allows one; empty when all is done."""
        async with self._door:
            while True:
                if not self._again and not self._fresh:
                    if self._source_ended and not self._flying:
                        self._door_bell.set()
                        self._poll_bell.set()
                        return []
                    await _ring(self._door_bell)
                    continue
                count, wait_s = self._take()
                if not count:
                    await _ring(self._door_bell, wait_s)
                    continue
                lines = self._cut(count)
                self._pace.put_back(count - len(lines))
                self._flying += len(lines)
                self._pump_bell.set()
                return lines

    def _take(self) -> tuple[int, float]:
        """Take room for the next call. While the server takes few lines, those that were never sent wait."""
        now = self._terms.now()
        if not self._again and not self._pace.held(now):
            lines = min(len(self._fresh), self._chunk_max)
            wait_s = self._patience.hold_s(self._task, lines, now=now, draw=self._terms.draw())
            if wait_s > 0:
                self._pace.hold(wait_s, now=now, shrink=False)
        return self._pace.take(self._chunk_max, now=now)

    def _cut(self, count: int) -> list[Line]:
        lines: list[Line] = []
        size = 0
        while len(lines) < count and (queue := self._again or self._fresh):
            size += len(queue[0].body)
            if lines and size > CHUNK_BYTES_MAX:
                break
            if queue is self._fresh:
                self._fresh_b -= len(queue[0].body)
            lines.append(queue.popleft())
        return lines

    async def _submit(self, lines: list[Line]) -> None:
        call = wire.submit_many_call([line.body for line in lines])._replace(kind=self._task)
        reply = await self._transport.send(call)
        if isinstance(reply, Answer) and reply.status < 300:
            self._settle(sort_verdicts(lines, reply))
            return
        self._pace.answered(taken=0, refused=len(lines))
        if may_repeat(wire.submit_many_call([]), reply):
            self._patience.holding.heard(call, reply, now=self._terms.now())
            self._press(lines, reply)
            return
        fault = fault_of(reply, self._terms.url)
        if not isinstance(fault, TooLargeError):
            raise fault  # it would be the same for every line
        if len(lines) == 1:
            self._emit(Mapped(lines[0].number, None, None, fault))
            return
        self._chunk_max = max(1, len(lines) // 2)
        self._again.extendleft(reversed(lines))

    def _settle(self, done: Sorted) -> None:
        now, taken, refused = self._terms.now(), len(done.settled), len(done.again)
        self._pace.answered(taken=taken, refused=refused)
        self._patience.counted(self._task, taken=taken, refused=refused, hint=done.hint, now=now)
        if done.settled:
            self._patience.success(now)
        for verdict in done.settled:
            if verdict.job_id is None:
                self._emit(Mapped(verdict.line, None, None, verdict.error))
                continue
            self.submitted += 1
            if self._wait:
                self._waiting.append((verdict.line, verdict.job_id))
            else:
                self._emit(Mapped(verdict.line, verdict.job_id, None, None))
        if done.again:
            self._patience.meet()
            wait_s = self._hold(done.hint)
            if wait_s is None:
                raise done.fault or NO_VERDICT
            self._again.extendleft(reversed(done.again))
        self._tell()

    def _press(self, lines: list[Line], reply: Answer | Lost) -> None:
        self._patience.meet(reply)
        fault = fault_of(reply, self._terms.url)
        if self._hold(hint_of(fault)) is None:
            raise fault
        self._patience.tell(reply, fault, now=self._terms.now())
        self._again.extendleft(reversed(lines))
        self._tell()

    def _hold(self, hint: Hint) -> float | None:
        """Hold the producer. Returns the wait, None when patience has ended."""
        now = self._terms.now()
        self.pressed += 1
        if self._pace.held(now):  # one wave of refusals is one failure
            wait_s: float | None = hint.after_s or 0.0
        else:
            wait_s = self._patience.wait_s(hint, now=now, draw=self._terms.draw())
        if wait_s is not None:
            self._pace.hold(wait_s, now=now, shrink=not hint.exact)
        return wait_s

    async def _poller(self) -> None:
        while True:
            if not self._waiting:
                idle = self._source_ended and not (self._flying or self._again or self._fresh)
                if idle and not self._polling:
                    self._poll_bell.set()
                    return
                await _ring(self._poll_bell)
                continue
            index, job_id = self._waiting.popleft()
            self._polling += 1
            try:
                await self._poll(index, job_id)
            finally:
                self._polling -= 1
                self._poll_bell.set()

    async def _poll(self, index: int, job_id: str) -> None:
        slice_s = POLL_SLICE_S if self._waiting else plans.WAIT_MAX_S
        view: wire.View | None = None
        try:
            view = await adrive(plans.ended(job_id, slice_s, self._terms), self._transport)
            result = await adrive(plans.outcome(view, self._terms), self._transport)
            self._patience.success(self._terms.now())  # a queue that drains is worth waiting for
            self._emit(Mapped(index, job_id, result, None, view))
        except NotFinishedError:
            self._waiting.append((index, job_id))
        except UnreachableError:
            raise
        except ForebayError as fault:
            self._emit(Mapped(index, job_id, None, fault, view))

    def _emit(self, item: Mapped) -> None:
        self.ended += 1
        self._out.put_nowait(item)
        self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(Progress(self.submitted, self.ended, self.pressed))


async def _ring(bell: asyncio.Event, wait_s: float = float("inf")) -> None:
    """Return when the bell rings or `wait_s` has passed. Whoever rings it again must set it again."""
    bell.clear()
    # Not wait_for: until Python 3.12 it can swallow a cancel that comes as the bell rings, and an interrupted
    # run would then never end.
    with suppress(TimeoutError):
        async with asyncio.timeout(None if wait_s == float("inf") else wait_s):
            await bell.wait()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner: Any = group
    while isinstance(inner, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", inner).exceptions[0]
    return cast("BaseException", inner)
