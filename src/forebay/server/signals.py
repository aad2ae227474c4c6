"""Signals: what SIGTERM, SIGINT and SIGHUP ask of a server."""

import asyncio
import os
import signal
from collections.abc import Awaitable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Signals:
    """The first signal asks for a drain, the second for an end at once."""

    drain: asyncio.Event = field(default_factory=asyncio.Event)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    code: int = 0

    def install(self) -> None:
        """Own the signals that end this process."""
        loop = asyncio.get_running_loop()
        for number in ending_signals():
            loop.add_signal_handler(number, self.received)

    def received(self) -> None:
        """Take one signal."""
        if self.drain.is_set():
            self.hurry.set()
        self.drain.set()

    def broken(self, code: int) -> None:
        """End at once with this code: the state of the store is unknown."""
        self.code = code
        self.drain.set()
        self.hurry.set()


def leave_on_signals() -> None:
    """Let the ending signals end this process at once, while nothing runs yet. By handlers, because process 1
    of a container has no default ones."""
    for number in ending_signals():
        signal.signal(number, lambda number, _: os._exit(128 + number))


def ending_signals() -> list[signal.Signals]:
    """Return SIGTERM, SIGINT, and the end of the terminal unless somebody wants us to outlive it (nohup)."""
    hang_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, *hang_up]


async def in_time(done: Awaitable[None], *, limit_s: float) -> bool:
    """Wait for the end of something, at most so long; say whether it came."""
    try:
        async with asyncio.timeout(limit_s):
            await done
    except TimeoutError:
        return False
    return True
