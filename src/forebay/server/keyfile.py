"""KeysWatch: the keys of the settings, read again when their file changes; a broken file changes nothing."""

import asyncio
import os
import signal
from pathlib import Path

from forebay.config import Settings
from forebay.errors import ConfigError
from forebay.keys import read_ring
from forebay.loops import goes_on
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock
from forebay.server.access import Watchman
from forebay.server.front import Log

LOOK_S = 1.0  # how often the file is looked at


class KeysWatch:
    """Owns the watchman of one server. Raises ConfigError with one line when the keys are wrong at start."""

    def __init__(self, settings: Settings, *, log: Log, clock: Clock) -> None:
        self._inline = None if settings.api_keys is None else settings.api_keys.reveal()
        self._file = None if settings.keys_file is None else Path(settings.keys_file)
        self._log = log
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._broker: Broker | None = None
        keyed = self._inline is not None or self._file is not None
        self._seen = self._mark()
        ring = read_ring(self._inline, self._file) if keyed else None
        self.watchman = Watchman(ring, apart=settings.admin_port is not None)

    def start(self, broker: Broker) -> None:
        """Give the engine the tenants' shares; look at the file from now on, and at once at every SIGHUP."""
        self._broker = broker
        self._took_effect()
        if self._file is not None:
            self._task = asyncio.ensure_future(goes_on(self._watch, "look at the keys file"))
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)

    def stop(self) -> None:
        """Look no more. Twice is harmless."""
        if self._task is not None:
            self._task.cancel()

    def reload(self) -> None:
        """Read the file now. When it is wrong the keys stay as they are, and the log says so in one line."""
        self._seen = self._mark()
        try:
            ring = read_ring(self._inline, self._file)
        except ConfigError as error:
            self._log.warning("keys_kept", error=str(error), hint="the keys from before go on")
            return
        self.watchman.use(ring)
        self._log.info("keys_read", keys=len(ring.keys))
        self._took_effect()

    def _took_effect(self) -> None:
        ring = self.watchman.ring
        if ring is None:
            return
        if self._broker is not None:
            shares = {name: limits.share for name, limits in ring.limits.items()}
            self._broker.set_shares(shares)
        weak = sum(key.weak for key in ring.keys.values())
        if weak:
            self._log.warning("api_keys_weak", keys=weak, hint="make them with: forebay keys new")

    async def _watch(self) -> None:
        await self._clock.sleep(LOOK_S)
        if self._mark() != self._seen:
            self.reload()

    def _mark(self) -> tuple[int, int, int] | None:
        if self._file is None:
            return None
        try:
            found = os.stat(self._file)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
