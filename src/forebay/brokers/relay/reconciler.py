"""Reconciler: finds jobs that are queued and have no hint, whatever lost it, and hints that have no job."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

from forebay.brokers.relay.link import Link
from forebay.brokers.relay.receiver import Receiver
from forebay.brokers.relay.sender import Sender
from forebay.errors import ForebayError
from forebay.loops import goes_on
from forebay.ports.broker import Broker, Load
from forebay.ports.clock import Clock
from forebay.ports.hinted import Hinted

LOOK_S: Final = 4.0  # on average; each process at times of its own
WORKS_S: Final = 60.0  # a task that was not leased for so long is looked after by others


class Reconciler:
    """One loop for as long as the relay is open."""

    def __init__(
        self,
        store: Broker,
        hinted: Hinted,
        link: Link,
        sender: Sender,
        receivers: Mapping[str, Receiver],
        clock: Clock,
        *,
        ring: Callable[[str], None],
    ) -> None:
        self._store = store
        self._hinted = hinted
        self._link = link
        self._sender = sender
        self._receivers = receivers
        self._clock = clock
        self._ring = ring
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.ensure_future(goes_on(self._run, "look for hints that are missing"))

    async def close(self) -> None:
        """Stop; twice is harmless."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def look(self) -> None:
        """Look at each task that is worked on here."""
        now = self._clock.now()
        for task, receiver in list(self._receivers.items()):
            load = self._store.load_now(task, now=now)
            if load is not None and load.queued and now - receiver.leased_at <= WORKS_S:
                with contextlib.suppress(ForebayError):
                    await self._look_at(task, receiver, load)

    async def _look_at(self, task: str, receiver: Receiver, load: Load) -> None:
        if not load.paused and not receiver.line.held:
            self._ring(task)
        if not self._link.up:
            return
        hints = await self._link.depth(task)
        if hints is None:
            return
        missing, surplus = receiver.gap.look(
            queued=load.queued, hints=hints, coming=self._sender.pending.of(task)
        )
        if surplus:
            receiver.too_many(surplus)
        if not missing:
            return
        for job_id in await self._hinted.queued(task, limit=missing):
            if not receiver.line.holds(job_id):
                self._link.events["again"] += 1
                self._sender.announce(task, job_id)

    async def _run(self) -> None:
        await self._clock.sleep(LOOK_S * (0.5 + self._clock.random()))
        await self.look()
