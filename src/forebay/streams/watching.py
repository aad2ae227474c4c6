"""Watch: the creator of a queue looks on a timer whether a process died, and gives back what it had."""

import threading
import weakref
from typing import Final

from forebay.streams.audit import audit
from forebay.streams.ring import Ring
from forebay.streams.seats import living

DEAD_LOOK_S: Final = 0.5  # whoever waits looks so often for the dead
LOOK_EVERY_S: Final = 0.25


class Watch:
    """One thread that sleeps nearly always. Ends with its queue."""

    def __init__(self, ring: Ring) -> None:
        self._stop = threading.Event()
        name, arguments = "forebay-frames-watch", (weakref.ref(ring), self._stop)
        threading.Thread(target=_watch, args=arguments, name=name, daemon=True).start()

    def stop(self) -> None:
        """End the thread at its next look, without waiting for it."""
        self._stop.set()


def _watch(ring_ref: "weakref.ref[Ring]", stop: threading.Event) -> None:
    while not stop.wait(LOOK_EVERY_S):
        ring = ring_ref()
        if ring is None or ring.closed:
            return
        look(ring)
        del ring


def look(ring: Ring) -> int:
    """Audit if a process of the queue has died; return the slots given back."""
    _, dead = living(ring.slab)
    return audit(ring) if dead else 0
