"""Sender: hints go out behind everything else: nobody waits for them, and a bounded number waits."""

import asyncio
import contextlib
from collections.abc import Callable, Collection
from typing import Final

from forebay.brokers.relay.hints import Signer
from forebay.brokers.relay.link import Link
from forebay.core.relay import SENT_MAX, Pending, Unannounced
from forebay.errors import DeliveryUnavailableError
from forebay.loops import goes_on
from forebay.ports.clock import Clock

BURIED_MAX: Final = 1_000  # dead letters that wait to be told; the store has them anyway
FLUSH_LOOK_S: Final = 0.005
LAST_MAX_S: Final = 1.0  # for what waits when the process ends


class Sender:
    """One loop for as long as the relay is open."""

    def __init__(
        self, link: Link, signer: Signer, clock: Clock, *, cry: Callable[[Collection[str]], None]
    ) -> None:
        """`cry`: ring everywhere for tasks whose hints cannot be sent."""
        self._link = link
        self._signer = signer
        self._clock = clock
        self._cry = cry
        self.pending = Pending()
        self.silent = Unannounced()
        self._dead = Pending(BURIED_MAX)
        self._soon = asyncio.Event()
        self._busy = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.ensure_future(goes_on(self._run, "send hints"))

    def announce(self, task: str, job_id: str = "") -> None:
        """Send a hint of a job, or of a task alone, soon."""
        if self.pending.put(task, job_id):
            self._soon.set()
        else:
            self._link.events["dropped"] += 1
            self.silent.add(job_id)

    def bury(self, task: str, job_id: str) -> None:
        """Tell of a dead letter, soon."""
        if self._dead.put(task, job_id):
            self._soon.set()

    async def flush(self) -> None:
        """Send what waits, within a bound; nothing while the broker is away."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_MAX_S):
                while self._link.up and (self._busy or self.pending or self._dead):
                    await self._clock.sleep(FLUSH_LOOK_S)

    async def stop(self) -> None:
        """Stop. Twice is harmless."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        await self._soon.wait()
        self._busy = True
        while self.pending:
            await self._send_some()
        while self._dead and not self.pending:
            await self._bury_some()
        self._busy = bool(self.pending)
        if not self._busy:
            self._soon.clear()

    async def _send_some(self) -> None:
        task, ids = self.pending.take(SENT_MAX)
        for job_id in ids:
            self.silent.discard(job_id)
        try:
            await self._link.send(task, [self._signer.body(task, job_id) for job_id in ids])
        except DeliveryUnavailableError:
            for job_id in ids:  # what came of it is unknown: twice is harmless
                if not self.pending.put(task, job_id):
                    self._link.events["dropped"] += 1
            # Those may all be run by the time the broker is back: this one is sent in any case, and shows it.
            self.pending.put(task, "")
            self._cry(self.pending.tasks())
            await self._clock.sleep(self._link.pause_s("send", self._clock.random()))

    async def _bury_some(self) -> None:
        task, ids = self._dead.take(SENT_MAX)
        with contextlib.suppress(DeliveryUnavailableError):
            await self._link.bury(task, [self._signer.body(task, job_id) for job_id in ids])
