"""DepthSampler: looks at every queue each 100 ms, so that what happens between two scrapes is not lost."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Protocol

from forebay.core.peak import Peak
from forebay.loops import goes_on
from forebay.ports.broker import Doorbell, Load
from forebay.ports.clock import Clock

SAMPLE_S = 0.1
REST_S = 1.0  # an empty server is looked at this often, and at once when a doorbell rings


class Loads(Protocol):
    """What is asked of an engine."""

    def load_now(self, task: str, *, now: float) -> Load | None:
        """Return what a task holds from memory, None where only IO can tell: such tasks have no peak."""
        ...

    def on_work(self, doorbell: Doorbell) -> Callable[[], None]:
        """Register a doorbell; returns the way to remove it."""
        ...


class DepthSampler:
    """One loop, for all tasks. While nothing waits it rests, because a server at rest should cost nothing:
    what it does not look at then are empty queues."""

    def __init__(self, peaks: Mapping[str, Peak], loads: Loads, clock: Clock) -> None:
        self._peaks = peaks
        self._loads = loads
        self._clock = clock
        self._rung = asyncio.Event()
        self._unhang: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._unhang = self._loads.on_work(lambda _: self._rung.set())
        self._task = asyncio.ensure_future(goes_on(self._run, "sample what waits"))

    async def close(self) -> None:
        """Stop; twice is harmless."""
        self._unhang()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def sample(self) -> bool:
        """Look once; return whether anything waits."""
        now, waits = self._clock.now(), False
        for task, peak in self._peaks.items():
            load = self._loads.load_now(task, now=now)
            if load is not None:
                peak.see(load.queued, now=now)
                waits = waits or load.queued > 0
        return waits

    async def _run(self) -> None:
        self._rung.clear()
        waits = self.sample()
        await self._clock.sleep(SAMPLE_S)
        if not waits and not self._rung.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REST_S):
                    await self._rung.wait()
