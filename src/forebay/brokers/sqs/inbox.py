"""Inbox: what arrives for one task: one poll at a time, whoever waits; nobody's cancellation loses a hint."""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from forebay.ports.clock import Clock
from forebay.ports.transport import Hint

PARALLEL_MAX: Final = 10  # calls at once, when there is more than one call returns
PART_MAX: Final = 10  # messages of one call
POLL_MAX_S: Final = 20
SLACK_S: Final = 0.1  # a poll that ends so much later is waited for
MARGIN_S: Final = 2.0  # what is ours for no longer than this is not handed out any more


class Receipt(NamedTuple):
    """The token of a hint."""

    handle: str
    received_at: float


Poll = Callable[[int, int], Awaitable[Sequence[Hint]]]  # at most so many, waiting so many seconds
Return = Callable[[Sequence[Hint]], Awaitable[None]]


class Inbox:
    """Hints of one task on their way to whoever receives."""

    def __init__(self, poll: Poll, give_back: Return, clock: Clock, hold_s: float, idle_s: float) -> None:
        self._ask = poll
        self._give_back = give_back
        self._clock = clock
        self._hold_s = hold_s
        self._idle_s = idle_s
        self._arrived: deque[Hint] = deque()
        self._poll: asyncio.Task[None] | None = None
        self._idle: asyncio.Task[None] | None = None
        self._wanted = 0  # by those who wait
        self._over = False  # nothing more is handed out

    async def take(self, limit: int, wait_s: float) -> list[Hint]:
        """Return up to `limit` hints as soon as there is one, none after `wait_s`."""
        until = self._clock.now() + wait_s
        self._wanted += limit
        try:
            while True:
                if hints := self._pick(limit):
                    return hints
                left_s = max(0.0, until - self._clock.now())
                poll, whole = self._polled(left_s)
                await asyncio.wait({poll}, timeout=None if whole else left_s)
                if self._over:
                    return []
                if poll.done():
                    poll.result()
                if not self._arrived and self._clock.now() >= until:
                    return []
        finally:
            self._wanted -= limit
            self._look_idle()

    def held(self) -> list[Hint]:
        """Return what nobody has taken yet."""
        return list(self._arrived)

    async def close(self) -> None:
        """Poll no more."""
        self._over = True
        tasks = [task for task in (self._poll, self._idle) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _polled(self, left_s: float) -> tuple["asyncio.Task[None]", bool]:
        """Return the poll that is on its way, or a new one; and whether it ends in time by itself."""
        if self._poll is not None:
            return self._poll, False
        wait_s = min(POLL_MAX_S, math.ceil(left_s))
        self._poll = asyncio.get_running_loop().create_task(self._run(wait_s))
        self._poll.add_done_callback(_looked_at)
        return self._poll, wait_s <= left_s + SLACK_S

    async def _run(self, wait_s: int) -> None:
        """Ask once; and while calls come back full, for more, twice as many each time."""
        try:
            wanted = max(1, self._wanted)
            got = await self._got(min(PART_MAX, wanted), wait_s)
            more, full = 1, got == PART_MAX
            while full and (left := wanted - len(self._arrived)) > 0:
                sizes = [min(PART_MAX, left - start) for start in range(0, left, PART_MAX)][:more]
                calls = (self._got(size, 0) for size in sizes)
                counts = await asyncio.gather(*calls, return_exceptions=True)
                full = counts == sizes
                for failed in counts:
                    if isinstance(failed, BaseException):
                        raise failed
                more = min(PARALLEL_MAX, more * 2)
        finally:
            self._poll = None
            self._look_idle()

    async def _got(self, most: int, wait_s: int) -> int:
        hints = await self._ask(most, wait_s)
        self._arrived.extend(hints)
        return len(hints)

    def _pick(self, limit: int) -> list[Hint]:
        oldest = self._clock.now() - self._hold_s + MARGIN_S
        hints: list[Hint] = []
        while self._arrived and len(hints) < limit:
            hint = self._arrived.popleft()
            if isinstance(hint.token, Receipt) and hint.token.received_at > oldest:
                hints.append(hint)  # others are on their way to somebody else
        return hints

    def _look_idle(self) -> None:
        if self._arrived and not self._wanted and self._idle is None and not self._over:
            self._idle = asyncio.get_running_loop().create_task(self._return_idle())
            self._idle.add_done_callback(_looked_at)

    async def _return_idle(self) -> None:
        """Give back what nobody comes for: others could do it."""
        try:
            await self._clock.sleep(self._idle_s)
            if not self._wanted:
                hints = list(self._arrived)
                self._arrived.clear()
                await self._give_back(hints)
        finally:
            self._idle = None


def _looked_at(task: "asyncio.Task[None]") -> None:
    if not task.cancelled():
        task.exception()  # those who waited raise it; when nobody did, the next call meets the same
