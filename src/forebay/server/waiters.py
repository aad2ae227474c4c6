"""Waiters: who waits for a change of which job. One listener at the broker, bounded, nothing missed.

A waiter subscribes before it reads the job, so a change between the read and the wait is heard.
Listening is best effort, so a waiter also looks for itself every RELOOK_S.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

from forebay.core.job import Settled
from forebay.core.lifecycle import FINAL
from forebay.ports.broker import Broker, Change
from forebay.server.answer import Receive
from forebay.server.limits import RELOOK_S, WAITERS_MAX


class Waiter:
    """One wait for one job."""

    __slots__ = ("_future", "_loop", "_rung", "ends_only", "settled")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, ends_only: bool) -> None:
        self._loop = loop
        self._rung = False
        self.ends_only = ends_only  # hears of nothing but the job's end
        self.settled: Settled | None = None  # how it ended, where the engine told
        self._future: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Tell it that something changed."""
        self._rung = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def changed(self, timeout_s: float) -> bool:
        """Return True at the next change, or when one came since the last call; False in the end."""
        if not self._rung:
            self._future = self._loop.create_future()
            timer = self._loop.call_later(timeout_s, _settle, self._future)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        rung, self._rung = self._rung, False
        return rung


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class Waiters:
    """All waits of this process."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._by_job: dict[str, list[Waiter]] = {}
        self._held = 0
        self.closed = False  # the server stops: every wait ends with what is known now
        self._unsubscribe: Callable[[], None] | None = None

    @property
    def held(self) -> int:
        """How many wait now."""
        return self._held

    @asynccontextmanager
    async def waiting(self, job_id: str, *, ends_only: bool = False) -> AsyncGenerator[Waiter | None, None]:
        """Subscribe to one job for the length of the block; None when WAITERS_MAX wait already."""
        if self._held >= WAITERS_MAX or self.closed:
            yield None
            return
        if self._unsubscribe is None:
            self._unsubscribe = self._broker.on_change(self._heard)
        waiter = Waiter(asyncio.get_running_loop(), ends_only=ends_only)
        self._by_job.setdefault(job_id, []).append(waiter)
        self._held += 1
        try:
            yield waiter
        finally:
            self._held -= 1
            left = self._by_job[job_id]
            left.remove(waiter)
            if not left:
                del self._by_job[job_id]
            if not self._held:  # nobody waits: the engine need not name every change
                self._unlisten()

    def _unlisten(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def close(self) -> None:
        """Stop listening and let every waiter go."""
        self.closed = True
        self._unlisten()
        for waiters in self._by_job.values():
            for waiter in waiters:
                waiter.ring()

    def _heard(self, changes: Sequence[Change]) -> None:
        by_job = self._by_job
        if not by_job:
            return
        for change in changes:
            waiters = by_job.get(change[0])
            if waiters is None:
                continue
            for waiter in waiters:
                if change.settled is not None:
                    waiter.settled = change.settled
                if not waiter.ends_only or change.state in FINAL:
                    waiter.ring()


async def hung_up(receive: Receive, waiter: Waiter) -> None:
    """Return when the client is gone, and ring."""
    while (await receive())["type"] != "http.disconnect":
        pass
    waiter.ring()


async def next_look(waiter: Waiter, left_s: float) -> None:
    """Return at a change, when it is time to look anyway, or when `left_s` is over."""
    await waiter.changed(min(RELOOK_S, left_s))
