"""Feed: what all sources share: counts, the end, and what the pipeline asks of them."""

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Final

from forebay.clock import SystemClock
from forebay.streams.ports import Pressure

STREAMS_MAX: Final = 1_024  # of which a source remembers what was asked of them


class Feed:
    """The part of a source that is not its frames. Made for one thread that reads and any that look."""

    live = False
    item_bytes_max: int | None = None

    def __init__(self, *counted: str) -> None:
        self.clock = SystemClock()
        self.closed = threading.Event()
        self._lock = threading.Lock()
        self._counts = Counter(dict.fromkeys(("frames", *counted), 0))
        self._asked: dict[str, tuple[Pressure, float]] = {}
        self._seen: Counter[str] = Counter()

    def count(self, name: str, more: int = 1) -> None:
        """Add to one of the counts."""
        with self._lock:
            self._counts[name] += more

    def counts(self) -> Mapping[str, int]:
        """Return the counts: `frames` given, and what else this kind of source counts."""
        with self._lock:
            return dict(self._counts)

    def press(self, pressure: Pressure) -> None:
        """Hear how much room there is in one of the streams."""
        with self._lock:
            if pressure.stream in self._asked or len(self._asked) < STREAMS_MAX:
                self._asked[pressure.stream] = (pressure, self.clock.now())

    def pressed(self, stream: str) -> Pressure | None:
        """Return what was asked of a stream last, None before anything was."""
        asked = self._asked.get(stream)
        return None if asked is None else asked[0]

    def unwanted(self, stream: str) -> str | None:
        """Return why the next frame of a stream is not wanted: `decimated` or `held_off`; None when it is."""
        asked = self._asked.get(stream)
        if asked is None:
            return None
        pressure, heard_at = asked
        if pressure.retry_after_s is not None and self.clock.now() < heard_at + pressure.retry_after_s:
            return "held_off"
        if pressure.every > 1:
            self._seen[stream] += 1
            return "decimated" if self._seen[stream] % pressure.every else None
        return None

    def close(self) -> None:
        """End soon: a `next` that waits stops. Twice is once."""
        self.closed.set()
