"""Janitor: what time alone decides - promote, expire, hand lost leases on, purge - again and again."""

import asyncio
from collections.abc import Callable, Sequence

from forebay.core import settle
from forebay.core.job import JobError
from forebay.errors import ForebayError, StoreBrokenError
from forebay.loops import tell
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock

SWEEP_S = 0.2  # how late a due job may become ready
SWEEP_MAX = 1000  # jobs of each kind in one sweep; a full sweep is followed by another at once
PURGE_S = 10.0
PURGE_MAX = 1000  # rows of one purge, so that nobody waits long behind it
FAILURE_WAIT_S = 1.0

LOST = JobError("worker_lost", "the node that ran it died, or its lease lapsed")


class Janitor:
    """One loop beside the lanes. Several janitors on one store are harmless: fences decide."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        *,
        on_failure: Callable[[str, BaseException], None] | None = None,
        on_expired: Callable[[Sequence[str]], None] | None = None,
        every_s: float = SWEEP_S,
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._on_failure = on_failure
        self._on_expired = on_expired
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None
        self._purged_at = clock.now()
        self.swept_at = clock.now()  # when a sweep last worked: a stalled janitor is a stalled queue

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Stop; twice is harmless."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def tick(self) -> bool:
        """Sweep once; return whether there is more to do at once."""
        now = self._clock.now()
        swept = await self._broker.sweep(limit=SWEEP_MAX, now=now)
        if swept.expired and self._on_expired is not None:
            self._on_expired(swept.expired)
        if swept.overdue:
            lost = [settle.lose(lease, error=LOST, now=now) for lease in swept.overdue]
            await self._broker.commit(lost, now=now)
        more = max(len(swept.promoted), len(swept.expired), len(swept.overdue)) >= SWEEP_MAX
        if now >= self._purged_at + PURGE_S:
            purged = await self._broker.purge(limit=PURGE_MAX, now=now)
            if purged < PURGE_MAX:
                self._purged_at = now
            else:
                more = True
        self.swept_at = now
        return more

    async def _run(self) -> None:
        while True:
            wait_s = self._every_s
            try:
                if await self.tick():
                    wait_s = 0.0
            except StoreBrokenError as error:
                self._report(error)
                return
            except ForebayError as error:
                self._report(error)
                wait_s = FAILURE_WAIT_S
            except Exception as error:
                tell("sweep the store", error)
                wait_s = FAILURE_WAIT_S
            await self._clock.sleep(wait_s)

    def _report(self, error: BaseException) -> None:
        if self._on_failure is not None:
            self._on_failure("sweep", error)
